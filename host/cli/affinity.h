/* SPDX-License-Identifier: Apache-2.0 */
/* PoCL's workers on cores of their own, for programs that measure.  PoCL wakes them without saying where, and two often
 * share a core for a whole process: short kernels then take twice the time. */
#ifndef CLATTN_CLI_AFFINITY_H
#define CLATTN_CLI_AFFINITY_H

/* Sets POCL_AFFINITY=1 in this process's environment, which PoCL reads at the first call of OpenCL, unless the variable is
 * there.  PoCL binds worker i to CPU i and aborts where it can't: so it is set only where the process may use CPUs
 * 0 to n-1 and no other, n being the number of workers.  Does nothing on systems other than Linux. */
void cli_affinity_set(void);
/* Whether POCL_AFFINITY is 1, whoever set it. */
int cli_affinity_is_set(void);

#endif
