/* SPDX-License-Identifier: Apache-2.0 */
/* One folder of the conformance format, read whole into memory: case.json and its .npy files. */
#ifndef CLATTN_TESTS_CONFORMANCE_CASE_H
#define CLATTN_TESTS_CONFORMANCE_CASE_H

#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

/* Why something failed or was skipped, in words. */
typedef struct cf_reason {
  char text[1024];
} cf_reason;
/* Fills the reason (printf's format, cut to fit) and returns 0, which is "no" for every function here. */
int cf_fail(cf_reason *reason, const char *format, ...);

typedef enum cf_type { CF_F32, CF_F64, CF_F16, CF_BF16, CF_BOOL, CF_U8, CF_I32, CF_I64 } cf_type;

enum { CF_MAX_RANK = 8, CF_MAX_TENSORS = 16, CF_MAX_NAME = 64 };

/* An array in C order. */
typedef struct cf_array {
  cf_type type;
  int rank;
  int64_t shape[CF_MAX_RANK]; /* unused axes: 1 */
  int64_t count;
  void *data; /* never NULL in a loaded array, also when count is 0 */
} cf_array;
size_t cf_type_bytes(cf_type type);
const char *cf_type_name(cf_type type);
/* Element `index`, exactly (but for int64 beyond 2^53). */
double cf_value(const cf_array *array, int64_t index);
/* "(2, 3, 4)" */
const char *cf_shape_text(const cf_array *array, char text[128]);

typedef struct cf_tensor {
  char name[CF_MAX_NAME];
  int64_t slot; /* -1: not given */
  cf_array array;
  cf_type stored;    /* the operator's own type; differs from the array's where a float64 reference took its place */
  double rtol, atol; /* outputs only */
} cf_tensor;

typedef struct cf_case {
  cJSON *root;
  const char *op;     /* inside root */
  const char *domain; /* likewise; "" when not given */
  int inputs, outputs;
  cf_tensor input[CF_MAX_TENSORS];
  cf_tensor output[CF_MAX_TENSORS]; /* what is wanted: the float64 reference where the case has one */
} cf_case;

/* Reads case.json far enough to know the operator.  1 on success; cf_case_close is needed in both cases. */
int cf_case_open(const char *folder, cf_case *out, cf_reason *reason);
/* Reads every tensor and tolerance. */
int cf_case_load(const char *folder, cf_case *c, cf_reason *reason);
void cf_case_close(cf_case *c);

/* Lookups; NULL when absent. */
const cf_tensor *cf_find_slot(const cf_tensor *tensors, int count, int64_t slot);
const cf_tensor *cf_find_name(const cf_tensor *tensors, int count, const char *name);

/* A number of `object` (an attribute list or the semantics).  absent (may be NULL) gets 1 when the key is missing or
 * null, then *value stays.  0 with the reason when it is no such number. */
int cf_get_integer(const cJSON *object, const char *key, int64_t low, int64_t high, int64_t *value, int *absent,
                   cf_reason *reason);
int cf_get_real(const cJSON *object, const char *key, float *value, int *absent, cf_reason *reason);
/* 0 with the reason when `list` is no object of root, or has a key outside `keys` (ends with NULL): nothing is
 * ignored in silence. */
int cf_only_keys(const cJSON *root, const char *list, const char *const *keys, cf_reason *reason);

#endif
