/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of launch lists share: a list with all that it is made from. */
#ifndef CLATTN_TESTS_TEST_LAUNCH_H
#define CLATTN_TESTS_TEST_LAUNCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "launch.h"
#include "made_up.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* A list and all that it points to. */
typedef struct made {
  clattn_problem problem;
  clattni_choice choice;
  clattni_sizes sizes;
  clattni_layout layout;
  clattni_launch_list list;
  int64_t starts[101]; /* of packed sequences, where packed rows are searched */
} made;

/* The table's row of this name. */
const clattni_variant *row_of(const char *name);
/* Of m->problem and m->sizes. */
void make_list(made *m, const clattni_variant *variant, uint64_t budget, int staged, int gathered, int hooked);
/* Work-groups on both axes. */
void check_groups(const clattni_launch *launch, int64_t x, int64_t y);
int64_t ceil_div(int64_t a, int64_t b);

/* The other file of this program. */
int test_launch_params(void);

#endif
