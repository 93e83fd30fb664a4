/* SPDX-License-Identifier: Apache-2.0 */
/* For tests whose own OpenCL functions stand before the loader's. */
#ifndef CLATTN_TESTS_NEXT_CALL_H
#define CLATTN_TESTS_NEXT_CALL_H

/* The loader's own function of this name, into a variable that points to such a function. */
void find_next(const char *name, void *next);

#endif
