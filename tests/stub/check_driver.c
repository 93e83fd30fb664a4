/* SPDX-License-Identifier: Apache-2.0 */
/* The stub driver itself: what it counts, fails, orders and objects to.  A driver that saw nothing would let every
 * other test here pass. */
#include "use.h"
#include <string.h>

static const char source[] = "#define ROWS __attribute__((reqd_work_group_size(8, 1, 1))) __kernel\n"
                             "/* kernel void not_this(int a); */\n"
                             "ROWS void add(const int count, __global const float *a, __global float *restrict b,\n"
                             "              __local float *scratch) {}\n"
                             "kernel void scale(global float4 *x, float4 by, long at) {}\n"
                             "#ifndef SIDE\n#define SIDE 1\n#endif\n#define CELLS (SIDE * (SIDE + 1))\n"
                             "ROWS void tile(global float *x) { local float a[CELLS][2]; __local ushort b[SIDE]; }\n";

static cl_program build(const rig *r) {
  const char *text = source;
  cl_int code;
  const cl_program program = clCreateProgramWithSource(r->cl, 1, &text, NULL, &code);
  assert_int_equal(code, CL_SUCCESS);
  assert_int_equal(clBuildProgram(program, 1, r->device, "-DX=1 -DSIDE=4", NULL, NULL), CL_SUCCESS);
  return program;
}

static cl_kernel make_kernel(cl_program program, const char *name) {
  cl_int code;
  const cl_kernel kernel = clCreateKernel(program, name, &code);
  assert_int_equal(code, CL_SUCCESS);
  return kernel;
}

/* Fails unless exactly one violation was recorded since the last call, with this text in it; then forgets it. */
static void expect_violation(const char *text) {
  if (stub->violations() != 1 || !strstr(stub->violation(0), text)) {
    print_violations();
    fail_msg("expected one violation with '%s'", text);
  }
  stub->reset();
}

static void test_platform(void **state) {
  const rig *const r = *state;
  char name[64];
  cl_uint count = 0;
  assert_int_equal(clGetPlatformIDs(0, NULL, &count), CL_SUCCESS);
  assert_int_equal(count, 1);
  assert_int_equal(clGetPlatformInfo(r->platform, CL_PLATFORM_NAME, sizeof name, name, NULL), CL_SUCCESS);
  assert_string_equal(name, "clattn stub");
  stub_settings settings;
  stub->settings(&settings);
  settings.num_devices = 0;
  stub->set_settings(&settings);
  assert_int_equal(clGetDeviceIDs(r->platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count), CL_DEVICE_NOT_FOUND);
  settings.num_devices = 2;
  settings.type[1] = CL_DEVICE_TYPE_CPU;
  settings.local_bytes = 12345;
  stub->set_settings(&settings);
  assert_int_equal(clGetDeviceIDs(r->platform, CL_DEVICE_TYPE_CPU, 0, NULL, &count), CL_SUCCESS);
  assert_int_equal(count, 1);
  cl_ulong local = 0;
  assert_int_equal(clGetDeviceInfo(r->device[0], CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL), CL_SUCCESS);
  assert_int_equal(local, 12345);
}

static void test_counts_and_failures(void **state) {
  const rig *const r = *state;
  stub->reset();
  const uint64_t objects = live_objects(), references = live_references();
  const cl_mem buffer = make_buffer(r->cl, 256);
  assert_int_equal(clRetainMemObject(buffer), CL_SUCCESS);
  assert_int_equal(live_objects(), objects + 1);
  assert_int_equal(live_references(), references + 2);
  assert_int_equal(stub->bytes(), 256);
  assert_int_equal(stub->calls(NULL), 2);
  assert_int_equal(stub->calls("clRetainMemObject"), 1);
  assert_string_equal(stub->call_name(0), "clCreateBuffer");
  assert_null(stub->call_name(2));

  stub->set_fail(NULL, 2, CL_OUT_OF_RESOURCES);
  assert_int_equal(clRetainMemObject(buffer), CL_SUCCESS);
  assert_int_equal(clRetainMemObject(buffer), CL_OUT_OF_RESOURCES);
  assert_int_equal(stub->failed(), 1);
  assert_string_equal(stub->failed_name(), "clRetainMemObject");
  assert_int_equal(live_references(), references + 3);

  stub->set_fail("clReleaseMemObject", 1, -4321);
  size_t bytes = 0;
  assert_int_equal(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(buffer), -4321); /* released all the same */
  assert_int_equal(live_references(), references + 2);
  assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS);
  assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS);
  assert_int_equal(live_objects(), objects);
  assert_int_equal(stub->bytes(), 0);
  assert_int_equal(stub->peak_bytes(), 256);
  assert_no_violation();

  assert_int_equal(clReleaseMemObject(buffer), CL_INVALID_MEM_OBJECT);
  expect_violation("was released");
}

static void test_misuse(void **state) {
  const rig *const r = *state;
  cl_int code;
  const cl_program program = build(r);
  const cl_kernel add = make_kernel(program, "add"), scale = make_kernel(program, "scale");
  const cl_mem a = make_buffer(r->cl, 64), b = make_buffer(r->cl, 64), foreign = make_buffer(r->foreign, 64);
  const size_t global = 16, local = 8, wrong = 5;
  const cl_int count = 4;
  assert_string_equal(stub->build_options(0), "-DX=1 -DSIDE=4");
  stub->reset();

  clCreateKernel(program, "not_there", &code);
  assert_int_equal(code, CL_INVALID_KERNEL_NAME);
  expect_violation("not_there");
  assert_int_equal(clSetKernelArg(add, 0, 8, "12345678"), CL_INVALID_ARG_SIZE);
  expect_violation("argument 0 (count)");
  assert_int_equal(clSetKernelArg(add, 4, 4, &count), CL_INVALID_ARG_INDEX);
  expect_violation("no argument 4");
  assert_int_equal(clSetKernelArg(add, 1, sizeof foreign, &foreign), CL_INVALID_MEM_OBJECT);
  expect_violation("another context");
  assert_int_equal(clSetKernelArg(add, 0, sizeof count, &count), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(add, 1, sizeof a, &a), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(add, 2, sizeof b, &b), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, add, 1, NULL, &global, &local, 0, NULL, NULL),
                   CL_INVALID_KERNEL_ARGS);
  expect_violation("argument 3 of add was never set");
  assert_int_equal(clSetKernelArg(add, 3, (size_t)1 << 20, NULL), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, add, 1, NULL, &global, &local, 0, NULL, NULL),
                   CL_OUT_OF_RESOURCES);
  expect_violation("local memory");
  assert_int_equal(clSetKernelArg(add, 3, 64, NULL), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, add, 1, NULL, &global, &wrong, 0, NULL, NULL),
                   CL_INVALID_WORK_GROUP_SIZE);
  expect_violation("no multiple");
  assert_int_equal(clEnqueueNDRangeKernel(r->other_context, add, 1, NULL, &global, &local, 0, NULL, NULL),
                   CL_INVALID_CONTEXT);
  expect_violation("another context");
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, add, 1, NULL, &global, &local, 1, NULL, NULL),
                   CL_INVALID_EVENT_WAIT_LIST);
  expect_violation("wait list");
  assert_int_equal(clFinish(r->in_order), CL_SUCCESS);
  expect_violation("blocks");
  assert_int_equal(clFlush(r->in_order), CL_SUCCESS);
  expect_violation("blocks");
  assert_int_equal(clReleaseMemObject(a), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, add, 1, NULL, &global, &local, 0, NULL, NULL),
                   CL_INVALID_KERNEL_ARGS);
  expect_violation("was released");
  clCreateBuffer(r->cl, 0, (size_t)3 << 30, NULL, &code);
  assert_int_equal(code, CL_INVALID_BUFFER_SIZE);
  expect_violation("the device allows");
  assert_int_equal(clSetKernelArg(scale, 1, 4, &count), CL_INVALID_ARG_SIZE); /* float4 has 16 */
  expect_violation("argument 1 (by)");
  assert_int_equal(stub->commands(), 0);

  clReleaseKernel(add);
  clReleaseKernel(scale);
  clReleaseProgram(program);
  clReleaseMemObject(b);
  clReleaseMemObject(foreign);
}

static void test_declared_sizes(void **state) {
  const rig *const r = *state;
  const cl_program program = build(r);
  const cl_kernel tile = make_kernel(program, "tile");
  const cl_mem x = make_buffer(r->cl, 64);
  cl_ulong local = 0;
  size_t group[3] = {0}, global = 16, right = 8, wrong = 4;
  assert_int_equal(clGetKernelWorkGroupInfo(tile, r->device[0], CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL),
                   CL_SUCCESS);
  assert_int_equal(local, 4 * 5 * 2 * 4 + 4 * 2);
  assert_int_equal(
      clGetKernelWorkGroupInfo(tile, r->device[0], CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof group, group, NULL),
      CL_SUCCESS);
  assert_int_equal(group[0], 8);
  assert_int_equal(clSetKernelArg(tile, 0, sizeof x, &x), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, tile, 1, NULL, &global, &right, 0, NULL, NULL), CL_SUCCESS);
  assert_no_violation();
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, tile, 1, NULL, &global, &wrong, 0, NULL, NULL),
                   CL_INVALID_WORK_GROUP_SIZE);
  expect_violation("requires groups of 8 x 1 x 1");
  stub_settings settings;
  stub->settings(&settings);
  settings.local_bytes = local - 1;
  stub->set_settings(&settings);
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, tile, 1, NULL, &global, &right, 0, NULL, NULL),
                   CL_OUT_OF_RESOURCES);
  expect_violation("local memory");
  clReleaseMemObject(x);
  clReleaseKernel(tile);
  clReleaseProgram(program);
}

static void CL_CALLBACK note_status(cl_event event, cl_int status, void *user) {
  (void)event;
  *(cl_int *)user = status;
}

static cl_int status_of(cl_event event) {
  cl_int status = 99;
  assert_int_equal(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), CL_SUCCESS);
  return status;
}

static void test_order_and_data(void **state) {
  const rig *const r = *state;
  stub_settings settings;
  stub->settings(&settings);
  settings.forbid_blocking = 0;
  stub->set_settings(&settings);
  const cl_mem buffer = make_buffer(r->cl, 16);
  const cl_event gate = make_user_event(r->cl);
  const cl_int seven = 7, nine = 9;
  cl_int got[4] = {0}, told = 99;
  cl_event filled, written, marked;
  assert_int_equal(clEnqueueFillBuffer(r->out_of_order, buffer, &seven, 4, 0, 16, 1, &gate, &filled), CL_SUCCESS);
  assert_int_equal(clEnqueueWriteBuffer(r->out_of_order, buffer, CL_FALSE, 4, 4, &nine, 1, &filled, &written),
                   CL_SUCCESS);
  assert_int_equal(clEnqueueMarkerWithWaitList(r->out_of_order, 0, NULL, &marked), CL_SUCCESS);
  assert_int_equal(clSetEventCallback(marked, CL_COMPLETE, note_status, &told), CL_SUCCESS);
  assert_int_equal(status_of(written), CL_QUEUED);
  const uint64_t gate_id = stub->event_id(gate), marked_id = stub->event_id(marked);
  history h;
  history_take(&h);
  assert_int_equal(h.count, 3);
  assert_true(history_waits(&h, marked_id, gate_id));
  assert_true(history_waits(&h, stub->event_id(written), stub->event_id(filled)));
  assert_false(history_waits(&h, stub->event_id(filled), stub->event_id(written)));
  history_free(&h);
  assert_int_equal(clReleaseMemObject(buffer), CL_SUCCESS); /* pending commands keep it */
  assert_true(stub->kept() > 0);
  assert_int_equal(told, 99);
  run_user_event(gate);
  assert_int_equal(told, CL_COMPLETE);
  assert_int_equal(status_of(marked), CL_COMPLETE);
  assert_int_equal(stub->kept(), 0);
  cl_ulong start = 0, end = 0;
  assert_int_equal(clGetEventProfilingInfo(marked, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL), CL_SUCCESS);
  assert_int_equal(clGetEventProfilingInfo(filled, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL), CL_SUCCESS);
  assert_true(start > end);
  clReleaseEvent(filled);
  clReleaseEvent(written);
  clReleaseEvent(marked);

  const cl_mem other = make_buffer(r->cl, 16);
  assert_int_equal(clEnqueueFillBuffer(r->in_order, other, &seven, 4, 0, 16, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clEnqueueWriteBuffer(r->in_order, other, CL_TRUE, 4, 4, &nine, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(clEnqueueReadBuffer(r->in_order, other, CL_TRUE, 0, 16, got, 0, NULL, NULL), CL_SUCCESS);
  assert_int_equal(got[0], 7);
  assert_int_equal(got[1], 9);
  assert_int_equal(got[3], 7);
  clReleaseMemObject(other);
}

static void test_records(void **state) {
  const rig *const r = *state;
  const cl_program program = build(r);
  const cl_kernel scale = make_kernel(program, "scale");
  const cl_mem x = make_buffer(r->cl, 4096);
  cl_int code;
  const cl_buffer_region half = {2048, 2048};
  const cl_mem sub = clCreateSubBuffer(x, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &code);
  assert_int_equal(code, CL_SUCCESS);
  const float by[4] = {1, 2, 3, 4};
  const cl_long at = 5;
  const size_t global[2] = {8, 4};
  assert_int_equal(clSetKernelArg(scale, 0, sizeof sub, &sub), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(scale, 1, sizeof by, by), CL_SUCCESS);
  assert_int_equal(clSetKernelArg(scale, 2, sizeof at, &at), CL_SUCCESS);
  cl_event event;
  assert_int_equal(clEnqueueNDRangeKernel(r->in_order, scale, 2, NULL, global, NULL, 0, NULL, &event), CL_SUCCESS);
  assert_int_equal(clEnqueueNDRangeKernel(r->out_of_order, scale, 2, NULL, global, NULL, 0, NULL, NULL), CL_SUCCESS);
  stub_command command;
  assert_int_equal(stub->command(0, &command), 1);
  assert_string_equal(command.kernel, "scale");
  assert_int_equal(command.id, stub->event_id(event));
  assert_int_equal(command.global[1], 4);
  assert_int_equal(command.num_args, 3);
  assert_ptr_equal(command.args[0].mem, sub);
  assert_ptr_equal(command.args[0].root, x);
  assert_int_equal(command.args[0].declared_const, 0);
  assert_int_equal(command.args[2].size, 8);
  assert_int_equal(stub->command(2, &command), 0);
  history h; /* two launches that write one buffer on two queues: not ordered */
  history_take(&h);
  assert_false(history_waits(&h, h.commands[1].id, h.commands[0].id));
  history_free(&h);
  clReleaseEvent(event);
  clReleaseMemObject(sub);
  clReleaseMemObject(x);
  clReleaseKernel(scale);
  clReleaseProgram(program);
}

int run_driver_tests(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_platform, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_counts_and_failures, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_misuse, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_declared_sizes, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_order_and_data, rig_setup, rig_teardown),
      cmocka_unit_test_setup_teardown(test_records, rig_setup, rig_teardown),
  };
  return cmocka_run_group_tests_name("stub driver", tests, NULL, NULL);
}
