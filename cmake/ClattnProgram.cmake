# SPDX-License-Identifier: Apache-2.0
# The clattn program.  It sees the public headers alone, and links the shared library, so that it proves that the public
# interface is enough.

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(CJSON QUIET IMPORTED_TARGET libcjson)
endif()
if(NOT CJSON_FOUND)
  message(FATAL_ERROR
    "The clattn program needs pkg-config and cJSON.\n"
    "On Debian and Ubuntu:  apt-get install pkg-config libcjson-dev\n"
    "Without the program:  -DCLATTN_BUILD_CLI=OFF -DCLATTN_BUILD_TESTS=OFF")
endif()

file(GLOB CLATTN_CLI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/host/cli/*.c)
add_executable(clattn-cli ${CLATTN_CLI_SOURCES})
clattn_own_target(clattn-cli)
target_link_libraries(clattn-cli PRIVATE clattn PkgConfig::CJSON ${CLATTN_LIBM})
# Its own folder: the library's target has the name of this file.
set_target_properties(clattn-cli PROPERTIES OUTPUT_NAME clattn RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
