/* SPDX-License-Identifier: Apache-2.0 */
#include "device_cases.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers, text -------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= UINT64_C(0x7fb5d329728ea185);
  x ^= x >> 27;
  x *= UINT64_C(0x81dadef4bc2dd44d);
  return x ^ (x >> 33);
}

double device_random(uint64_t seed, uint64_t a, uint64_t b) {
  const uint64_t x = mix(mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ a) + b * UINT64_C(0xd1342543de82ef95));
  return (double)(x >> 11) / 9007199254740992.0;
}

void put_text(line_text *text, const char *format, ...) {
  va_list values;
  va_start(values, format);
  const int length = vsnprintf(text->at, text->left, format, values);
  va_end(values);
  if (length > 0 && (size_t)length < text->left) {
    text->at += length;
    text->left -= (size_t)length;
  } else if (text->left > 0) {
    *text->at = '\0';
  }
}

/* ---- expansion ------------------------------------------------------------------------------------------------- */

static size_t count_values(const char *vary) {
  size_t count = 1;
  for (; vary != NULL && *vary != '\0'; ++vary)
    count += *vary == '|';
  return count;
}

size_t device_case_jobs(const device_case *row) {
  return row->random > 0 ? (size_t)row->random : count_values(row->vary[0]) * count_values(row->vary[1]);
}

/* " key=value" of value number index. */
static void put_value(line_text *text, const char *vary, size_t index) {
  if (vary == NULL)
    return;
  const char *value = strchr(vary, '=') + 1;
  put_text(text, " %.*s", (int)(value - vary), vary);
  for (; index > 0; --index)
    value = strchr(value, '|') + 1;
  put_text(text, "%.*s", (int)strcspn(value, "|"), value);
}

static void read_row(const device_case *row, size_t index, device_job *job) {
  line_text text = {job->line, sizeof job->line};
  const size_t inner = count_values(row->vary[1]);
  put_text(&text, "%s", row->line);
  put_value(&text, row->vary[0], index / inner);
  put_value(&text, row->vary[1], index % inner);
  job->data = row->data;
  /* stages go round with the index, so rows of many jobs meet all of them anyway */
  job->stages = row->stages > 0 || device_case_jobs(row) < 8 ? row->stages : 2;
  job->scale_given = row->scale > 0 || row->scale < 0;
  job->softcap_given = row->softcap > 0 || row->softcap < 0;
  job->on_device = row->on_device;
  job->check_contents = row->check_contents;
  job->with_o = row->types;
}

/* The next entry of a list that starts again when it is at its end. */
static int64_t next_entry(const char *list, const char **at) {
  char *end;
  const int64_t value = strtol(*at, &end, 10);
  *at = *end == ',' ? end + 1 : list;
  return value;
}

static void read_entries(const char *list, int64_t batch, job_ints *array) {
  const char *at = list;
  array->given = list != NULL;
  array->count = list != NULL ? (size_t)batch : 0;
  for (size_t b = 0; b < array->count; ++b)
    array->entry[b] = (int32_t)next_entry(list, &at);
}

/* Starts of packed sequences from their rows. */
static void read_starts(const char *list, int64_t batch, int64_t most, int64_t total, job_ints *array) {
  const char *at = list;
  array->given = 1;
  array->count = (size_t)batch + 1;
  array->entry[0] = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t left = total - array->entry[b], wanted = next_entry(list, &at);
    int64_t rows = wanted < 0 || wanted > left ? left : wanted;
    rows = rows > most ? most : rows;
    array->entry[b + 1] = array->entry[b] + (int32_t)rows;
  }
}

/* -1 is full, and so is what would be more. */
static void cut_lengths(const device_job *job, int64_t (*rows)(const device_job *, int64_t), job_ints *array) {
  for (size_t b = 0; b < array->count; ++b) {
    const int32_t most = (int32_t)rows(job, (int64_t)b);
    if (array->entry[b] < 0 || array->entry[b] > most)
      array->entry[b] = most;
  }
}

/* The arrays that the problem's modes ask for, from the row's lists; 0 if one is not there. */
static int read_arrays(const device_case *row, device_job *job) {
  const clattn_problem *p = &job->problem;
  const int64_t batch = job->sizes.batch;
  const int q = clattni_packed_q(p), k = clattni_packed_k(p);
  const int q_lengths = p->q_length_mode == CLATTN_LENGTH_PER_BATCH,
            k_lengths = p->k_length_mode == CLATTN_LENGTH_PER_BATCH, prefix = p->prefix_mode == CLATTN_PREFIX_PER_BATCH,
            offsets = p->offset_mode == CLATTN_OFFSET_PER_BATCH;
  if ((q && row->rows_q == NULL) || (k && row->rows_k == NULL) || (q_lengths && row->q_lengths == NULL) ||
      (k_lengths && row->k_lengths == NULL) || (prefix && row->prefix == NULL) || (offsets && row->q_offsets == NULL)) {
    (void)fprintf(stderr, "case \"%s\" lacks the entries of an array\n", row->name);
    return 0;
  }
  if (q)
    read_starts(row->rows_q, batch, job->sizes.q_len, p->total_q, &job->array[ARRAY_CU_Q]);
  if (k)
    read_starts(row->rows_k, batch, job->sizes.k_len, p->total_k, &job->array[ARRAY_CU_K]);
  read_entries(q_lengths ? row->q_lengths : NULL, batch, &job->array[ARRAY_Q_LENGTHS]);
  read_entries(k_lengths ? row->k_lengths : NULL, batch, &job->array[ARRAY_K_LENGTHS]);
  read_entries(prefix ? row->prefix : NULL, batch, &job->array[ARRAY_PREFIX]);
  read_entries(offsets || p->offset_mode == CLATTN_OFFSET_VALUE ? row->q_offsets : NULL, batch,
               &job->array[ARRAY_Q_OFFSETS]);
  if (!offsets && job->array[ARRAY_Q_OFFSETS].given && strchr(row->q_offsets, ',') == NULL)
    job->array[ARRAY_Q_OFFSETS].count = 1; /* one for all */
  cut_lengths(job, job_q_rows, &job->array[ARRAY_Q_LENGTHS]);
  cut_lengths(job, job_k_rows, &job->array[ARRAY_K_LENGTHS]);
  return 1;
}

/* Entries that the device has to clamp to those that count.  Of starts only the first ones that are 0, the last ones
 * that are the total, and that of an empty last sequence, which may end before it starts. */
static void go_wild(device_job *job, job_array which) {
  job_ints *array = &job->array[which];
  const int64_t total = which == ARRAY_CU_Q ? job->problem.total_q : job->problem.total_k;
  for (size_t b = 0; b < array->count; ++b) {
    const int many = device_random(job->seed, 201 + (uint64_t)which, b) < 0.5;
    const int32_t entry = array->entry[b];
    if (which == ARRAY_Q_OFFSETS)
      continue;
    if ((which == ARRAY_CU_Q || which == ARRAY_CU_K) && entry > 0) {
      if (entry == total)
        array->brought[b] = many ? INT32_MAX : entry + 1;
      else if (b + 1 == array->count && array->entry[b - 1] == entry)
        array->brought[b] = many ? INT32_MIN : entry - 1;
    } else if (entry == 0) {
      array->brought[b] = many ? INT32_MIN : -1;
    } else if ((which == ARRAY_Q_LENGTHS && entry == job_q_rows(job, (int64_t)b)) ||
               (which == ARRAY_K_LENGTHS && entry == job_k_rows(job, (int64_t)b))) {
      array->brought[b] = many ? INT32_MAX : entry + 1;
    }
  }
}

static void bring_arrays(device_job *job) {
  for (int n = 0; n < JOB_ARRAYS; ++n) {
    memcpy(job->array[n].brought, job->array[n].entry, sizeof job->array[n].entry);
    if ((job->on_device & ON_DEVICE_WILD) && (job->on_device >> n & 1))
      go_wild(job, (job_array)n);
  }
}

int device_job_read_line(const char *name, device_job *job) {
  clattn_error error;
  clattn_error_init(&error);
  if (clattn_problem_parse(job->line, &job->problem, &error) != CLATTN_SUCCESS ||
      clattn_problem_check(&job->problem, &error) != CLATTN_SUCCESS) {
    (void)fprintf(stderr, "case \"%s\": %s: %s\n", name, job->line, error.message);
    return 0;
  }
  clattni_problem_resolve(&job->problem, &job->resolved);
  if (job->resolved.batch > JOB_MAX_BATCH) {
    (void)fprintf(stderr, "case \"%s\": more than %d batch entries\n", name, JOB_MAX_BATCH);
    return 0;
  }
  job->sizes = clattni_bounds(&job->resolved);
  return 1;
}

void device_job_finish(device_job *job) {
  bring_arrays(job);
  if (!job->scale_given)
    job->scale = job->resolved.scale;
  if (!job->softcap_given)
    job->softcap = job->resolved.softcap;
}

int device_job_draw(uint64_t seed, const draw_mix *mix, int crossing, device_job *job) {
  memset(job, 0, sizeof *job);
  job->seed = seed;
  draw_line(seed, 0, mix, crossing, job);
  if (!device_job_read_line("drawn", job))
    return 0;
  draw_arrays(seed, crossing, job);
  device_job_finish(job);
  return 1;
}

int device_case_job(const device_case *row, size_t index, device_job *job) {
  memset(job, 0, sizeof *job);
  for (const char *c = row->name; *c != '\0'; ++c)
    job->seed = job->seed * 131 + (unsigned char)*c;
  job->seed += 1000003u * index;
  if (row->random > 0)
    draw_line(job->seed, row->full, NULL, 0, job);
  else
    read_row(row, index, job);
  if (!device_job_read_line(row->name, job))
    return 0;
  if (row->random > 0) {
    draw_arrays(job->seed, 0, job);
  } else {
    job->sizes_given = row->sizes != NULL;
    if (row->sizes != NULL && sscanf(row->sizes, "%" SCNd64 ",%" SCNd64 ",%" SCNd64, &job->sizes.batch,
                                     &job->sizes.q_len, &job->sizes.k_len) != 3)
      return 0;
    if (!read_arrays(row, job))
      return 0;
  }
  job->scale = row->scale;
  job->softcap = row->softcap > 0 ? row->softcap : 0.0f;
  job->softcap_brought = row->softcap;
  device_job_finish(job);
  return 1;
}

/* ---- the rules, pair by pair ----------------------------------------------------------------------------------- */

int64_t job_q_rows(const device_job *job, int64_t b) {
  const job_ints *starts = &job->array[ARRAY_CU_Q];
  return starts->given ? (int64_t)starts->entry[b + 1] - starts->entry[b] : job->sizes.q_len;
}

int64_t job_k_rows(const device_job *job, int64_t b) {
  const job_ints *starts = &job->array[ARRAY_CU_K];
  return starts->given ? (int64_t)starts->entry[b + 1] - starts->entry[b] : job->sizes.k_len;
}

int64_t job_q_len(const device_job *job, int64_t b) {
  return job->array[ARRAY_Q_LENGTHS].given ? job->array[ARRAY_Q_LENGTHS].entry[b] : job_q_rows(job, b);
}

int64_t job_k_len(const device_job *job, int64_t b) {
  return job->array[ARRAY_K_LENGTHS].given ? job->array[ARRAY_K_LENGTHS].entry[b] : job_k_rows(job, b);
}

int64_t job_offset(const device_job *job, int64_t b) {
  const job_ints *offsets = &job->array[ARRAY_Q_OFFSETS];
  if (offsets->given)
    return offsets->entry[offsets->count == 1 ? 0 : b];
  if (job->problem.offset_mode == CLATTN_OFFSET_BOTTOM_RIGHT)
    return job_k_len(job, b) - job_q_len(job, b);
  return job->problem.offset_mode == CLATTN_OFFSET_VALUE ? job->problem.offset : 0;
}

static int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

static int64_t job_prefix(const device_job *job, int64_t b) {
  if (job->array[ARRAY_PREFIX].given)
    return job->array[ARRAY_PREFIX].entry[b];
  return job->problem.prefix_mode == CLATTN_PREFIX_VALUE ? job->problem.prefix : 0;
}

int job_sees(const device_job *job, int64_t b, int64_t i, int64_t j) {
  const clattn_problem *p = &job->problem;
  const int64_t position = i + job_offset(job, b), distance = j - position;
  if (i >= job_q_len(job, b) || j >= job_k_len(job, b))
    return 0;
  if (p->causal && distance > 0 && j >= job_prefix(job, b))
    return 0;
  if (p->chunk > 0 && floor_divide(position, p->chunk) != floor_divide(j, p->chunk))
    return 0;
  if ((p->window & CLATTN_WINDOW_LEFT) && distance < -p->window_left)
    return 0;
  return !((p->window & CLATTN_WINDOW_RIGHT) && distance > p->window_right);
}
