# SPDX-License-Identifier: Apache-2.0
# clattn_program(NAME SOURCES FILE... [LIBRARIES TARGET...] [DEFINITIONS ...] [INCLUDES FOLDER...])
#   a test program in tests/ with this project's settings.
# clattn_test(NAME COMMAND ... LABELS LABEL... [TIMEOUT SECONDS] [ENVIRONMENT VARIABLE=VALUE...] [PASS REGEX]
#             [CACHE NAME] [COST SECONDS])
#   a ctest slot.  PoCL keeps built kernels per slot, warm between runs, in CLATTN_TEST_CACHE; slots of one CACHE, which
#   use the same kernels, share them and run one after the other.  Slots with a COST, what they take with nothing warm,
#   start first, so that no core is left with a long one at the end.

set(CLATTN_TEST_CACHE "${PROJECT_BINARY_DIR}/pocl-cache" CACHE PATH
  "Folder for the kernels that PoCL keeps of the tests; may be another build's, whose tests do not run meanwhile")

function(clattn_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;DEFINITIONS;INCLUDES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  clattn_own_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} ${CLATTN_LIBM})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  target_include_directories(${name} PRIVATE ${arg_INCLUDES})
endfunction()

function(clattn_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;PASS;CACHE;COST" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_CACHE)
    set(arg_CACHE ${name})
  endif()
  set(cache ${CLATTN_TEST_CACHE}/${arg_CACHE})
  file(MAKE_DIRECTORY ${cache})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(environment POCL_CACHE_DIR=${cache} ${arg_ENVIRONMENT})
  if(CLATTN_SANITIZE)
    # PoCL and LLVM keep memory until the process ends; anything that clattn itself loses still counts.
    list(APPEND environment
      "LSAN_OPTIONS=suppressions='${PROJECT_SOURCE_DIR}/tests/lsan.supp':print_suppressions=0"
      "UBSAN_OPTIONS=print_stacktrace=1" "TSAN_OPTIONS=halt_on_error=1" "OCL_ICD_DEEPBIND=0")
  endif()
  set_tests_properties(${name} PROPERTIES
    RESOURCE_LOCK "pocl-cache-${arg_CACHE}"
    LABELS "${arg_LABELS}"
    TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "${environment}"
    ENVIRONMENT_MODIFICATION POCL_MAX_PTHREAD_COUNT=unset:)
  if(arg_COST)
    set_tests_properties(${name} PROPERTIES COST ${arg_COST})
  endif()
  if(arg_PASS)
    set_tests_properties(${name} PROPERTIES PASS_REGULAR_EXPRESSION "${arg_PASS}")
  endif()
endfunction()
