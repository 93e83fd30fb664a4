/* SPDX-License-Identifier: Apache-2.0 */
/* What problem.c, problem_check.c and problem_text.c share. */
#ifndef CLATTN_PROBLEM_INTERNAL_H
#define CLATTN_PROBLEM_INTERNAL_H

#include "problem.h"

/* Non-negative factors; *product is INT64_MAX and the result 0 where it does not fit. */
int clattni_multiply(int64_t a, int64_t b, int64_t *product);

/* Whether the slot's tensor has this axis: lse has no axis 3, max_logit and the slopes have 0 and 1, sink and
 * head_scale 1 alone, add_w 1 and 3, the tables of rotary embedding lack 1. */
int clattni_slot_has_axis(clattni_slot slot, int axis);

/* Whether the tensor's own strides count, rather than those that its layout implies. */
int clattni_strides_given(const clattn_tensor *tensor);

/* As clattni_slot_strides, for problems that are not checked yet: 0 where a stride does not fit. */
int clattni_slot_strides_checked(const clattn_problem *resolved, const clattni_sizes *sizes, clattni_slot slot,
                                 int64_t stride[4]);

/* Reserved words, unknown bits and enum values of every field, used or not; by the table of problem_text.c. */
clattn_status clattni_check_fields(const clattn_problem *problem, clattn_error *error);

/* The name that problem lines use; NULL outside the enum. */
const char *clattni_layout_name(clattn_layout layout);

/* A float as decimal text that reads back to the same bits, with '.' in every locale; and back, 1 on success. */
enum { CLATTNI_FLOAT_TEXT = 32 };
void clattni_float_format(float value, char text[CLATTNI_FLOAT_TEXT]);
int clattni_float_parse(const char *text, size_t length, float *value);
/* Turns whatever a locale puts for the decimal point into '.', in place. */
void clattni_point(char *number);

#endif
