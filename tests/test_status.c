/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sentences of status codes, and the caller-owned error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "clattn.h"
#include "status.h"

#define NAMED(code)                                                                                                    \
  { code, #code }
static const struct {
  clattn_status status;
  const char *name;
} named[] = {
    NAMED(CLATTN_SUCCESS),
    NAMED(CLATTN_ERROR_NULL_POINTER),
    NAMED(CLATTN_ERROR_STRUCT_SIZE),
    NAMED(CLATTN_ERROR_RESERVED),
    NAMED(CLATTN_ERROR_ENUM),
    NAMED(CLATTN_ERROR_SHAPE),
    NAMED(CLATTN_ERROR_STRIDE),
    NAMED(CLATTN_ERROR_OVERFLOW),
    NAMED(CLATTN_ERROR_VALUE),
    NAMED(CLATTN_ERROR_LENGTH),
    NAMED(CLATTN_ERROR_TENSOR_MISSING),
    NAMED(CLATTN_ERROR_TENSOR_UNUSED),
    NAMED(CLATTN_ERROR_BUFFER_TOO_SMALL),
    NAMED(CLATTN_ERROR_ALIGNMENT),
    NAMED(CLATTN_ERROR_OVERLAP),
    NAMED(CLATTN_ERROR_WRONG_CONTEXT),
    NAMED(CLATTN_ERROR_WRONG_DEVICE),
    NAMED(CLATTN_ERROR_WORKSPACE_TOO_SMALL),
    NAMED(CLATTN_ERROR_BOUND),
    NAMED(CLATTN_ERROR_UNKNOWN_VARIANT),
    NAMED(CLATTN_ERROR_VARIANT_UNFIT),
    NAMED(CLATTN_ERROR_NOT_SUPPORTED),
    NAMED(CLATTN_ERROR_NO_DEVICE),
    NAMED(CLATTN_ERROR_OUT_OF_MEMORY),
    NAMED(CLATTN_ERROR_TEXT),
    NAMED(CLATTN_ERROR_SELF_TEST),
    NAMED(CLATTN_ERROR_INTERNAL),
    NAMED(CL_DEVICE_NOT_FOUND),
    NAMED(CL_DEVICE_NOT_AVAILABLE),
    NAMED(CL_COMPILER_NOT_AVAILABLE),
    NAMED(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    NAMED(CL_OUT_OF_RESOURCES),
    NAMED(CL_OUT_OF_HOST_MEMORY),
    NAMED(CL_PROFILING_INFO_NOT_AVAILABLE),
    NAMED(CL_MEM_COPY_OVERLAP),
    NAMED(CL_IMAGE_FORMAT_MISMATCH),
    NAMED(CL_IMAGE_FORMAT_NOT_SUPPORTED),
    NAMED(CL_BUILD_PROGRAM_FAILURE),
    NAMED(CL_MAP_FAILURE),
    NAMED(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    NAMED(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    NAMED(CL_COMPILE_PROGRAM_FAILURE),
    NAMED(CL_LINKER_NOT_AVAILABLE),
    NAMED(CL_LINK_PROGRAM_FAILURE),
    NAMED(CL_DEVICE_PARTITION_FAILED),
    NAMED(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    NAMED(CL_INVALID_VALUE),
    NAMED(CL_INVALID_DEVICE_TYPE),
    NAMED(CL_INVALID_PLATFORM),
    NAMED(CL_INVALID_DEVICE),
    NAMED(CL_INVALID_CONTEXT),
    NAMED(CL_INVALID_QUEUE_PROPERTIES),
    NAMED(CL_INVALID_COMMAND_QUEUE),
    NAMED(CL_INVALID_HOST_PTR),
    NAMED(CL_INVALID_MEM_OBJECT),
    NAMED(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
    NAMED(CL_INVALID_IMAGE_SIZE),
    NAMED(CL_INVALID_SAMPLER),
    NAMED(CL_INVALID_BINARY),
    NAMED(CL_INVALID_BUILD_OPTIONS),
    NAMED(CL_INVALID_PROGRAM),
    NAMED(CL_INVALID_PROGRAM_EXECUTABLE),
    NAMED(CL_INVALID_KERNEL_NAME),
    NAMED(CL_INVALID_KERNEL_DEFINITION),
    NAMED(CL_INVALID_KERNEL),
    NAMED(CL_INVALID_ARG_INDEX),
    NAMED(CL_INVALID_ARG_VALUE),
    NAMED(CL_INVALID_ARG_SIZE),
    NAMED(CL_INVALID_KERNEL_ARGS),
    NAMED(CL_INVALID_WORK_DIMENSION),
    NAMED(CL_INVALID_WORK_GROUP_SIZE),
    NAMED(CL_INVALID_WORK_ITEM_SIZE),
    NAMED(CL_INVALID_GLOBAL_OFFSET),
    NAMED(CL_INVALID_EVENT_WAIT_LIST),
    NAMED(CL_INVALID_EVENT),
    NAMED(CL_INVALID_OPERATION),
    NAMED(CL_INVALID_GL_OBJECT),
    NAMED(CL_INVALID_BUFFER_SIZE),
    NAMED(CL_INVALID_MIP_LEVEL),
    NAMED(CL_INVALID_GLOBAL_WORK_SIZE),
    NAMED(CL_INVALID_PROPERTY),
    NAMED(CL_INVALID_IMAGE_DESCRIPTOR),
    NAMED(CL_INVALID_COMPILER_OPTIONS),
    NAMED(CL_INVALID_LINKER_OPTIONS),
    NAMED(CL_INVALID_DEVICE_PARTITION_COUNT),
    {-69, "CL_INVALID_PIPE_SIZE"},
    {-70, "CL_INVALID_DEVICE_QUEUE"},
    {-71, "CL_INVALID_SPEC_ID"},
    {-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

static void every_code_has_its_name_and_a_sentence(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
    const char *text = clattn_status_text(named[i].status);
    assert_string_equal(clattn_status_name(named[i].status), named[i].name);
    assert_non_null(strchr(text, ' '));
    assert_int_equal(text[strlen(text) - 1], '.');
    assert_string_not_equal(text, clattn_status_text(12345));
  }
}

static void own_codes_have_no_gap(void **state) {
  (void)state;
  for (clattn_status status = CLATTN_ERROR_INTERNAL; status <= CLATTN_ERROR_NULL_POINTER; status++)
    assert_memory_equal(clattn_status_name(status), "CLATTN_ERROR_", 13);
}

static void unknown_codes_are_said_to_be(void **state) {
  static const clattn_status unknown[] = {1, -20, -29, -73, -20000, -20027, INT32_MIN, INT32_MAX};
  (void)state;
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
    assert_string_equal(clattn_status_name(unknown[i]), "UNKNOWN_STATUS");
    assert_non_null(clattn_status_text(unknown[i]));
  }
}

static void error_init_sets_the_size_alone(void **state) {
  clattn_error error;
  (void)state;
  memset(&error, 0xa5, sizeof error);
  clattn_error_init(&error);
  assert_int_equal(error.struct_size, sizeof error);
  for (size_t i = sizeof error.struct_size; i < sizeof error; i++)
    assert_int_equal(((unsigned char *)&error)[i], 0);
  clattn_error_init(NULL);
}

static void failing_fills_the_error(void **state) {
  clattn_error error;
  (void)state;
  clattn_error_init(&error);
  assert_int_equal(clattni_fail(&error, CLATTN_ERROR_SHAPE, "kv_heads %d does not divide q_heads %d", 3, 8),
                   CLATTN_ERROR_SHAPE);
  assert_int_equal(error.status, CLATTN_ERROR_SHAPE);
  assert_string_equal(error.message, "kv_heads 3 does not divide q_heads 8");
}

static void long_messages_are_cut(void **state) {
  char word[2000];
  clattn_error error;
  (void)state;
  memset(word, 'w', sizeof word);
  word[sizeof word - 1] = '\0';
  clattn_error_init(&error);
  assert_int_equal(clattni_fail(&error, CLATTN_ERROR_TEXT, "%s", word), CLATTN_ERROR_TEXT);
  assert_int_equal(strlen(error.message), sizeof error.message - 1);
  assert_null(error.build_log);
}

static void an_absent_or_foreign_error_is_left_alone(void **state) {
  clattn_error error, before;
  (void)state;
  assert_int_equal(clattni_fail(NULL, CLATTN_ERROR_SHAPE, "x"), CLATTN_ERROR_SHAPE);
  clattni_clear(NULL);
  clattni_set_log(NULL, "x", 1);
  memset(&error, 0x5a, sizeof error);
  before = error;
  assert_int_equal(clattni_fail(&error, CLATTN_ERROR_SHAPE, "x"), CLATTN_ERROR_SHAPE);
  clattni_clear(&error);
  clattni_set_log(&error, "x", 1);
  assert_memory_equal(&error, &before, sizeof error);
}

static void logs_are_cut_to_the_callers_memory(void **state) {
  char memory[8];
  clattn_error error;
  (void)state;
  clattn_error_init(&error);
  clattni_set_log(&error, "no memory for it", 16);
  assert_int_equal(error.build_log_length, 16);

  error.build_log = memory;
  error.build_log_capacity = 6;
  memset(memory, '#', sizeof memory);
  clattni_set_log(&error, "abcdefghij", 10);
  assert_int_equal(error.build_log_length, 10);
  assert_memory_equal(memory, "abcde\0##", 8);
  clattni_set_log(&error, "abcde", 5);
  assert_memory_equal(memory, "abcde\0##", 8);
  clattni_set_log(&error, "abcdef", 6);
  assert_memory_equal(memory, "abcde\0##", 8);
  clattni_set_log(&error, "ab", 2);
  assert_string_equal(memory, "ab");

  (void)clattni_fail(&error, CL_BUILD_PROGRAM_FAILURE, "no");
  clattni_clear(&error);
  assert_int_equal(error.status, CLATTN_SUCCESS);
  assert_string_equal(error.message, "");
  assert_int_equal(error.build_log_length, 0);
  assert_string_equal(memory, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_its_name_and_a_sentence),
      cmocka_unit_test(own_codes_have_no_gap),
      cmocka_unit_test(unknown_codes_are_said_to_be),
      cmocka_unit_test(error_init_sets_the_size_alone),
      cmocka_unit_test(failing_fills_the_error),
      cmocka_unit_test(long_messages_are_cut),
      cmocka_unit_test(an_absent_or_foreign_error_is_left_alone),
      cmocka_unit_test(logs_are_cut_to_the_callers_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
