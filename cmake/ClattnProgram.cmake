# SPDX-License-Identifier: Apache-2.0
# The clattn program.  It sees the public headers alone, and links the shared libraries, so that it proves that the public
# interface is enough.

if(NOT TARGET clattn_nn)
  message(FATAL_ERROR "The clattn program runs models: CLATTN_BUILD_CLI needs CLATTN_BUILD_NN.")
endif()
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(CJSON QUIET IMPORTED_TARGET libcjson)
  pkg_check_modules(UTF8PROC QUIET IMPORTED_TARGET libutf8proc)
  pkg_check_modules(CAIRO QUIET IMPORTED_TARGET cairo-ft fontconfig)
endif()
if(NOT CJSON_FOUND OR NOT UTF8PROC_FOUND)
  message(FATAL_ERROR
    "The clattn program needs pkg-config, cJSON and utf8proc.\n"
    "On Debian and Ubuntu:  apt-get install pkg-config libcjson-dev libutf8proc-dev\n"
    "Without the program:  -DCLATTN_BUILD_CLI=OFF -DCLATTN_BUILD_TESTS=OFF -DCLATTN_BUILD_BENCH=OFF")
endif()

# Pictures as .png.
set(CLATTN_PNG OFF)
if(CAIRO_FOUND AND NOT CLATTN_WITH_PNG STREQUAL "OFF")
  set(CLATTN_PNG ON)
elseif(CLATTN_WITH_PNG STREQUAL "ON")
  message(FATAL_ERROR
    "CLATTN_WITH_PNG needs cairo with FreeType and fontconfig.\n"
    "On Debian and Ubuntu:  apt-get install libcairo2-dev libfontconfig-dev")
endif()

# Models in a folder.
file(GLOB CLATTN_MODEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/host/model/*.c)
add_library(clattn_model STATIC ${CLATTN_MODEL_SOURCES})
clattn_own_target(clattn_model)
target_include_directories(clattn_model PUBLIC ${PROJECT_SOURCE_DIR}/host/model)
target_link_libraries(clattn_model PUBLIC clattn_nn PkgConfig::CJSON PkgConfig::UTF8PROC ${CLATTN_LIBM})

file(GLOB CLATTN_CLI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/host/cli/*.c)
# The benchmark: its probes' kernels and its table of shapes are embedded.
file(GLOB CLATTN_BENCH_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/host/bench/*.c)
clattn_embed_kernels(bench_kernels_embedded bench/ CLATTN_BENCH_KERNEL_SOURCE CLATTN_BENCH_GENERATED_DIR)
clattn_embed_text(${PROJECT_SOURCE_DIR}/bench/suites.txt bench_suites suites_embedded CLATTN_SUITES_SOURCE)
# All but main, for tests that run parts of the program in their own process.
list(REMOVE_ITEM CLATTN_CLI_SOURCES ${PROJECT_SOURCE_DIR}/host/cli/main.c)
add_library(clattn_program OBJECT ${CLATTN_CLI_SOURCES} ${CLATTN_BENCH_SOURCES} ${CLATTN_BENCH_KERNEL_SOURCE}
  ${CLATTN_SUITES_SOURCE})
target_include_directories(clattn_program PUBLIC ${PROJECT_SOURCE_DIR}/host ${PROJECT_SOURCE_DIR}/host/cli
  ${PROJECT_SOURCE_DIR}/host/bench ${CLATTN_BENCH_GENERATED_DIR})
clattn_own_target(clattn_program)
target_link_libraries(clattn_program PUBLIC clattn_model clattn_nn clattn PkgConfig::CJSON ${CLATTN_LIBM})
if(CLATTN_PNG)
  target_compile_definitions(clattn_program PRIVATE CLATTN_WITH_PNG)
  target_link_libraries(clattn_program PUBLIC PkgConfig::CAIRO)
endif()
add_executable(clattn-cli ${PROJECT_SOURCE_DIR}/host/cli/main.c)
clattn_own_target(clattn-cli)
target_link_libraries(clattn-cli PRIVATE clattn_program)
# Its own folder: the library's target has the name of this file.
set_target_properties(clattn-cli PROPERTIES OUTPUT_NAME clattn RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
