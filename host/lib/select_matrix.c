/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of kernels/flash_gpu_matrix.cl: which matrix unit, what it takes, which tile. */
#include <stdio.h>

#include "device.h"
#include "select.h"
#include "status.h"

/* The unit's word in kernels/matrix_unit.cl.h, and its sub-groups. */
typedef struct matrix_unit {
  const char *word;
  int sub_group;
  int values_turned; /* V^T in local memory */
} matrix_unit;

static const matrix_unit units[] = {
    [CLATTNI_MATRIX_NVIDIA_75] = {"nvidia75", 32, 0}, [CLATTNI_MATRIX_NVIDIA] = {"nvidia", 32, 0},
    [CLATTNI_MATRIX_WMMA] = {"wmma", 32, 1},          [CLATTNI_MATRIX_WMMA_12] = {"wmma12", 32, 1},
    [CLATTNI_MATRIX_MFMA_90A] = {"mfma", 64, 1},      [CLATTNI_MATRIX_MFMA] = {"mfma", 64, 1},
    [CLATTNI_MATRIX_DPAS_8] = {"dpas", 8, 0},         [CLATTNI_MATRIX_DPAS_16] = {"dpas", 16, 0}};

#define SUB_GROUPS 4 /* of a work-group, 16 rows each */
#define LARGEST_DIM 256

/* Elements that a head has in registers: multiples of 32, few enough programs. */
static int whole_dim(int64_t dim) {
  static const int classes[] = {32, 64, 96, 128, 192};
  for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); ++i)
    if (dim <= classes[i])
      return classes[i];
  return LARGEST_DIM;
}

/* What the kernel declares. */
static uint64_t local_bytes(const matrix_unit *unit, int rows, int keys, int dim, int stays) {
  const uint64_t pitch = (uint64_t)dim + 8, q = (uint64_t)rows * pitch, k = (uint64_t)keys * pitch;
  const uint64_t v = unit->values_turned ? (uint64_t)dim * ((uint64_t)keys + 8) : k;
  const uint64_t words = stays ? q + k + v : q > k + v ? q : k + v;
  return 2 * words + 4 * (uint64_t)rows + 4;
}

/* Why the unit does not take the problem; NULL if it does. */
static const char *unfit(const clattn_problem *problem, clattni_matrix unit) {
  if (problem->q.dtype != problem->k.dtype || problem->q.dtype != problem->v.dtype ||
      (problem->q.dtype != CLATTN_F16 && problem->q.dtype != CLATTN_BF16))
    return "q, k and v must be f16, or all bf16";
  if (unit == CLATTNI_MATRIX_NVIDIA_75 && problem->q.dtype == CLATTN_BF16)
    return "matrix units of compute capability 7.5 have no bf16";
  if (unit == CLATTNI_MATRIX_MFMA_90A && problem->q.dtype == CLATTN_F16 && problem->math != CLATTN_MATH_HALF)
    return "the matrix unit of gfx90a takes subnormal f16 for 0, which only math=half allows";
  if (problem->similarity != CLATTN_DOT)
    return "the similarity must be the dot product";
  if (problem->rope != CLATTN_ROPE_NONE)
    return "rotary embedding gives numbers that are no halves";
  if (problem->qk_dim > LARGEST_DIM || problem->v_dim > LARGEST_DIM)
    return "head dimensions are at most 256";
  if (problem->outputs & CLATTN_OUT_SCORES)
    return "it does not write scores";
  if (problem->flags & CLATTN_BATCH_INVARIANT)
    return "when a row's maximum is renewed depends on the rows beside it, so that it is not batch invariant";
  return NULL;
}

int clattni_choose_matrix(const clattni_request *request, clattni_choice *choice, clattn_error *error) {
  const clattn_problem *problem = request->problem;
  const clattn_device_info *device = request->device;
  const int emulated = request->emulated != CLATTNI_MATRIX_NONE;
  const clattni_matrix unit = emulated ? request->emulated : (clattni_matrix)device->matrix;
  const char *const name = choice->variant->name, *const unit_name = clattni_matrix_name(unit);
  if (unit_name == NULL) {
    clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT, "variant %s: the device has no matrix unit that clattn knows",
                 name);
    return 0;
  }
  const matrix_unit *const of = &units[unit];
  if (emulated && !(device->sub_group_sizes & (uint32_t)of->sub_group)) {
    clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                 "variant %s: to emulate the matrix unit %s takes sub-groups of %d, which the device does not offer",
                 name, unit_name, of->sub_group);
    return 0;
  }
  const char *reason = unfit(problem, unit);
  if (reason != NULL) {
    clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT, "variant %s: %s", name, reason);
    return 0;
  }
  const int dim = whole_dim(problem->qk_dim > problem->v_dim ? problem->qk_dim : problem->v_dim);
  /* long heads leave registers for half a block of keys and local memory for fewer queries */
  const int stays = dim > 128, keys = stays ? 16 : 64, subs = stays ? 3 : SUB_GROUPS;
  const int rows = 16 * subs, items = of->sub_group * subs;
  const uint64_t local = local_bytes(of, rows, keys, dim, stays);
  if (device->max_work_group < (uint32_t)items || device->local_bytes < local) {
    clattni_fail(error, CLATTN_ERROR_VARIANT_UNFIT,
                 "variant %s needs work-groups of %d items and %llu bytes of local memory; the device has %u and %llu",
                 name, items, (unsigned long long)local, device->max_work_group,
                 (unsigned long long)device->local_bytes);
    return 0;
  }
  choice->rows = rows;
  choice->key_multiple = 16;
  choice->keys_per_chunk = keys;
  choice->dim_chunk = LARGEST_DIM;
  choice->gx = of->sub_group;
  choice->gy = subs;
  snprintf(choice->options, sizeof(choice->options),
           "-DCLATTN_UNIT=%s -DCLATTN_SUB=%d -DCLATTN_SUBS=%d -DCLATTN_KEYS=%d -DCLATTN_DIM=%d%s%s", of->word,
           of->sub_group, subs, keys, dim, stays ? " -DCLATTN_Q_STAYS=1" : "", emulated ? " -DCLATTN_EMULATED=1" : "");
  return 1;
}
