/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a job in memory that traps mistakes, and its runs on a device.
 *
 * Every tensor has a mapping of its own that ends where its buffer ends: a page behind it can't be touched.  Inputs
 * are NaN but for the elements that some kept pair needs; outputs are filled with a pattern that must still stand
 * wherever no element lies. */
#ifndef CLATTN_TEST_DEVICE_RUN_H
#define CLATTN_TEST_DEVICE_RUN_H

#include "device_cases.h"

typedef struct device_rig {
  clattn_context *context;
  cl_context cl;
  cl_device_id device;
  cl_command_queue queue;        /* in order */
  cl_command_queue out_of_order; /* NULL if the device has none */
} device_rig;
/* The context has the config_text of the environment's CLATTN_TEST_CONFIG, if that is set: width=4 runs the tests on
 * vectors of four lanes. */
int device_rig_open(device_rig *rig);
void device_rig_close(device_rig *rig);

typedef struct image {
  unsigned char *memory; /* the buffer's first byte; NULL: no such tensor, or an empty one */
  size_t bytes, mapped;  /* of the buffer; of the mapping */
  size_t offset;         /* bytes to element (0,0,0,0) */
  size_t element;        /* bytes of what one address holds: an element, or two of i4 */
  clattn_dtype dtype;
  const struct image *scale;   /* of i8 and i4 */
  int64_t shape[4], stride[4]; /* shape: (batch, head, row, element), also of packed and paged tensors */
  const int32_t *starts;       /* of packed tensors: first rows of the sequences, and the end of the last one */
  const struct image *table;   /* of paged tensors */
  int64_t page_size, pages;
  int pattern; /* byte that it was filled with */
  cl_mem buffer;
} image;

/* Points into its job, which must not move before it is closed. */
typedef struct job_memory {
  image slot[CLATTNI_SLOTS];
  image array[JOB_ARRAYS], scale, softcap; /* those that are on the device */
} job_memory;
/* 0 on failure, with a message. */
int job_memory_open(const device_rig *rig, const device_job *job, job_memory *memory);
void job_memory_close(job_memory *memory);

int image_open(const device_rig *rig, size_t bytes, int pattern, image *out);
void image_close(image *closing);
/* Fills buffers with their patterns; makes visible to the host what the device wrote there.  0 on failure. */
#define IMAGES_MOST 8
int images_fill(cl_command_queue queue, image *const *list, size_t count);
int images_sync(cl_command_queue queue, image *const *list, size_t count);
/* Brings what the host wrote into an image's memory to the device. */
int image_push(cl_command_queue queue, const image *changed);
/* The output tensors that have memory; their count. */
size_t job_outputs(job_memory *memory, image *list[IMAGES_MOST]);
/* Whether row r of batch entry b is there: packed sequences end. */
int image_has_row(const image *tensor, int64_t b, int64_t r);
/* The byte index of an element. */
size_t image_at(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e);
/* The number that an element stands for, i8 and i4 with their scale; what is stored, bit by bit; and the other way. */
float image_float(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e);
uint32_t image_raw(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e);
void image_set_raw(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e, uint32_t raw);
/* Bits of masks: key n of a row. */
int image_bit(const image *mask, int64_t b, int64_t h, int64_t r, int64_t n);
void image_set_bit(const image *mask, int64_t b, int64_t h, int64_t r, int64_t n, int on);
/* Rounds to the tensor's type; of i8 and i4 `value` is the code. */
void image_set(const image *tensor, int64_t b, int64_t h, int64_t r, int64_t e, float value);
/* To nearest even, beyond the largest number infinite. */
double round_to_type(clattn_dtype dtype, double value);
/* The bits of f16 or bf16. */
uint16_t encode_half(clattn_dtype dtype, double value);

/* The line of rope's tables that turns query row i, or key j (of_key), of a batch entry: its position, clamped. */
int64_t job_table_line(const device_job *job, const job_memory *memory, int of_key, int64_t b, int64_t r);
/* Whether the keep mask and the block mask in memory keep a pair; 1 without a mask. */
int job_masks_keep(const device_job *job, const job_memory *memory, int64_t b, int64_t h, int64_t i, int64_t j);

#define OUTPUT_PATTERN 0x7e

typedef struct run_options {
  const char *variant;
  uint32_t outputs;
  clattn_stage stage;
  uint64_t workspace_cap;
  int inner_workspace;     /* 1: the library makes the workspace */
  const clattn_plan *plan; /* or NULL: one is made for the run */
} run_options;

/* Poisons the outputs, runs, waits, and checks all that no element may have touched.  0 on failure, with a message.
 * *claimed becomes 0 when the variant does not take the problem: then nothing ran. */
int device_run(const device_rig *rig, const device_job *job, job_memory *memory, const run_options *options,
               int *claimed);

clattn_status device_plan(const device_rig *rig, const device_job *job, const run_options *options, clattn_plan **plan,
                          clattn_error *error);
void device_args(const device_job *job, const job_memory *memory, uint32_t outputs, clattn_args *args);

#endif
