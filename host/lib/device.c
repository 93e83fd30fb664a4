/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <string.h>

#include "status.h"

/* Asks for a value of a fixed size. */
static cl_int ask(cl_device_id device, cl_device_info what, size_t size, void *value) {
  memset(value, 0, size);
  return clGetDeviceInfo(device, what, size, value, NULL);
}

/* Asks for a string; a longer one is cut, since clattn only shows it. */
static cl_int ask_text(cl_device_id device, cl_device_info what, char *text, size_t capacity) {
  char whole[1024];
  size_t length = 0;
  cl_int code = clGetDeviceInfo(device, what, 0, NULL, &length);
  text[0] = 0;
  if (code != CL_SUCCESS || length == 0 || length > sizeof(whole))
    return code;
  code = clGetDeviceInfo(device, what, length, whole, NULL);
  if (code == CL_SUCCESS) {
    whole[length - 1] = 0;
    const size_t shown = strlen(whole) < capacity ? strlen(whole) : capacity - 1;
    memcpy(text, whole, shown);
    text[shown] = 0;
  }
  return code;
}

/* Whether a space-separated list holds exactly this word. */
static uint32_t has_word(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = strstr(list, word); at != NULL; at = strstr(at + length, word))
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
      return 1;
  return 0;
}

/* Of cl_nv_device_attribute_query and cl_intel_required_subgroup_size, which not all headers have. */
#define COMPUTE_CAPABILITY_MAJOR_NV 0x4000
#define COMPUTE_CAPABILITY_MINOR_NV 0x4001
#define SUB_GROUP_SIZES_INTEL 0x4108

/* 10 * major + minor; 0 if the device does not say. */
static unsigned compute_capability(cl_device_id device, const char *extensions) {
  cl_uint major = 0, minor = 0;
  if (!has_word(extensions, "cl_nv_device_attribute_query") ||
      ask(device, COMPUTE_CAPABILITY_MAJOR_NV, sizeof(major), &major) != CL_SUCCESS ||
      ask(device, COMPUTE_CAPABILITY_MINOR_NV, sizeof(minor), &minor) != CL_SUCCESS)
    return 0;
  return 10 * major + minor;
}

/* Sizes of sub-groups that kernels can ask for, added up. */
static uint32_t sub_group_sizes(cl_device_id device, const char *extensions) {
  size_t sizes[16], length = 0;
  uint32_t sum = 0;
  if (!has_word(extensions, "cl_intel_required_subgroup_size") ||
      clGetDeviceInfo(device, SUB_GROUP_SIZES_INTEL, sizeof(sizes), sizes, &length) != CL_SUCCESS)
    return 0;
  for (size_t i = 0; i < length / sizeof(sizes[0]); ++i)
    if (sizes[i] <= 128 && (sizes[i] & (sizes[i] - 1)) == 0)
      sum |= (uint32_t)sizes[i];
  return sum;
}

/* The matrix unit, by what the device says of itself: NVIDIA's compute capability, AMD's name of the architecture, Intel's
 * extension with the smallest sub-group. */
static clattni_matrix matrix_unit(cl_device_id device, const clattn_device_info *info, const char *extensions) {
  static const struct {
    const char *name;
    clattni_matrix unit;
  } names[] = {{"gfx90a", CLATTNI_MATRIX_MFMA_90A},
               {"gfx942", CLATTNI_MATRIX_MFMA},
               {"gfx11", CLATTNI_MATRIX_WMMA},
               {"gfx12", CLATTNI_MATRIX_WMMA_12}};
  const unsigned capability = compute_capability(device, extensions);
  if (!(info->type & CL_DEVICE_TYPE_GPU))
    return CLATTNI_MATRIX_NONE;
  if (capability >= 75)
    return capability >= 80 ? CLATTNI_MATRIX_NVIDIA : CLATTNI_MATRIX_NVIDIA_75;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
    if (strncmp(info->name, names[i].name, strlen(names[i].name)) == 0)
      return names[i].unit;
  if (has_word(extensions, "cl_intel_subgroup_matrix_multiply_accumulate"))
    return info->sub_group_sizes & 8    ? CLATTNI_MATRIX_DPAS_8
           : info->sub_group_sizes & 16 ? CLATTNI_MATRIX_DPAS_16
                                        : CLATTNI_MATRIX_NONE;
  return CLATTNI_MATRIX_NONE;
}

clattn_status clattni_device_query(cl_device_id device, clattn_device_info *info, clattn_error *error) {
  char extensions[8192] = "";
  cl_device_type type = 0;
  cl_ulong global = 0, alloc = 0, local = 0;
  cl_uint units = 0, width = 0, align_bits = 0, address_bits = 0;
  cl_device_local_mem_type local_type = 0;
  cl_bool little = CL_FALSE, available = CL_FALSE, compiler = CL_FALSE;
  cl_command_queue_properties queue = 0;
  size_t group = 0, parameters = 0, length = 0;
  memset(info, 0, sizeof(*info));
  info->struct_size = sizeof(*info);

  const struct {
    cl_device_info what;
    size_t size;
    void *value;
  } facts[] = {{CL_DEVICE_TYPE, sizeof(type), &type},
               {CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(global), &global},
               {CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(alloc), &alloc},
               {CL_DEVICE_LOCAL_MEM_SIZE, sizeof(local), &local},
               {CL_DEVICE_LOCAL_MEM_TYPE, sizeof(local_type), &local_type},
               {CL_DEVICE_MAX_PARAMETER_SIZE, sizeof(parameters), &parameters},
               {CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units},
               {CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(group), &group},
               {CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof(width), &width},
               {CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(align_bits), &align_bits},
               {CL_DEVICE_ENDIAN_LITTLE, sizeof(little), &little},
               {CL_DEVICE_AVAILABLE, sizeof(available), &available},
               {CL_DEVICE_COMPILER_AVAILABLE, sizeof(compiler), &compiler},
               {CL_DEVICE_QUEUE_PROPERTIES, sizeof(queue), &queue},
               {CL_DEVICE_ADDRESS_BITS, sizeof(address_bits), &address_bits}};
  for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); ++i) {
    const cl_int code = ask(device, facts[i].what, facts[i].size, facts[i].value);
    if (code != CL_SUCCESS)
      return clattni_fail(error, code, "clGetDeviceInfo(0x%x) failed: %s", (unsigned)facts[i].what,
                          clattn_status_text(code));
  }
  const struct {
    cl_device_info what;
    size_t capacity;
    char *text;
  } names[] = {{CL_DEVICE_NAME, sizeof(info->name), info->name},
               {CL_DEVICE_VENDOR, sizeof(info->vendor), info->vendor},
               {CL_DRIVER_VERSION, sizeof(info->driver), info->driver},
               {CL_DEVICE_VERSION, sizeof(info->version), info->version}};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    const cl_int code = ask_text(device, names[i].what, names[i].text, names[i].capacity);
    if (code != CL_SUCCESS)
      return clattni_fail(error, code, "clGetDeviceInfo(0x%x) failed: %s", (unsigned)names[i].what,
                          clattn_status_text(code));
  }
  cl_int code = clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &length);
  /* A list too long for the buffer means that optional facts stay "no", never that the device is refused. */
  if (code == CL_SUCCESS && length > 0 && length <= sizeof(extensions))
    code = clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, length, extensions, NULL);
  if (code != CL_SUCCESS)
    return clattni_fail(error, code, "clGetDeviceInfo(CL_DEVICE_EXTENSIONS) failed: %s", clattn_status_text(code));
  if (!available || !compiler)
    return clattni_fail(error, available ? CL_COMPILER_NOT_AVAILABLE : CL_DEVICE_NOT_AVAILABLE,
                        "device '%s' is not usable: it %s", info->name,
                        available ? "has no compiler for OpenCL C" : "reports itself as not available");

  info->type = type;
  info->global_bytes = global;
  info->max_alloc_bytes = alloc;
  info->local_bytes = local;
  info->compute_units = units;
  info->max_work_group = group > UINT32_MAX ? UINT32_MAX : (uint32_t)group;
  info->max_parameter_bytes = parameters > UINT32_MAX ? UINT32_MAX : (uint32_t)parameters;
  info->native_float_width = width;
  info->base_align_bytes = align_bits / 8;
  info->local_is_real = local_type == CL_LOCAL;
  info->has_fp16 = has_word(extensions, "cl_khr_fp16");
  info->has_sub_groups = has_word(extensions, "cl_khr_subgroups") || has_word(extensions, "cl_intel_subgroups");
  info->little_endian = little == CL_TRUE;
  info->out_of_order = (queue & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
  info->address_bits = address_bits;
  info->sub_group_sizes = sub_group_sizes(device, extensions);
  info->matrix = (uint32_t)matrix_unit(device, info, extensions);
  return CLATTN_SUCCESS;
}

int clattni_lanes(const clattn_device_info *device, uint32_t forced) {
  const uint32_t width = forced != 0 ? forced : device->native_float_width;
  return width >= 16 ? 16 : width >= 8 ? 8 : 4;
}

static const char *const matrix_names[] = {
    [CLATTNI_MATRIX_NVIDIA_75] = "nvidia-75", [CLATTNI_MATRIX_NVIDIA] = "nvidia",     [CLATTNI_MATRIX_WMMA] = "wmma",
    [CLATTNI_MATRIX_WMMA_12] = "wmma-12",     [CLATTNI_MATRIX_MFMA_90A] = "mfma-90a", [CLATTNI_MATRIX_MFMA] = "mfma",
    [CLATTNI_MATRIX_DPAS_8] = "dpas-8",       [CLATTNI_MATRIX_DPAS_16] = "dpas-16"};
#define MATRIX_NAMES ((clattni_matrix)(sizeof(matrix_names) / sizeof(matrix_names[0])))

clattni_matrix clattni_matrix_named(const char *text) {
  static const char before[] = "emulate-";
  if (strncmp(text, before, strlen(before)) == 0)
    for (clattni_matrix unit = CLATTNI_MATRIX_NONE + 1; unit < MATRIX_NAMES; ++unit)
      if (strcmp(text + strlen(before), matrix_names[unit]) == 0)
        return unit;
  return CLATTNI_MATRIX_NONE;
}

const char *clattni_matrix_name(clattni_matrix unit) {
  return unit > CLATTNI_MATRIX_NONE && unit < MATRIX_NAMES ? matrix_names[unit] : NULL;
}
