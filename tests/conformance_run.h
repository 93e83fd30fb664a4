/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job, by the library on a device or by the double-precision reference, and judges what comes out. */
#ifndef CLATTN_TESTS_CONFORMANCE_RUN_H
#define CLATTN_TESTS_CONFORMANCE_RUN_H

#include "conformance_job.h"
#include "device.h"

/* 1 when every wanted output that the job computes is right and nothing beside the outputs was written. */
int cf_run_device(const cli_session *session, const char *variant, const cf_work *work, const cf_job *job,
                  cf_reason *reason);
int cf_run_reference(const cf_work *work, const cf_job *job, cf_reason *reason);

#endif
