# SPDX-License-Identifier: Apache-2.0
# Builds and runs the examples as an application outside of this build does.
#   cmake -DMODE=find_package|pkg_config|subproject -DSOURCE=<repository> -DBUILD=<this build> -DFOLDER=<scratch>
#         -DCONFIG=<configuration> -DCC=<compiler> -DGENERATOR=<name> -DSANITIZE=<sanitizers> -P test_example.cmake
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
set(configure_arguments -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_C_FLAGS=${flags})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\ngave ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(run_embed program)
  run(${program})
  if(NOT output MATCHES "largest difference from double precision: [0-9]")
    message(FATAL_ERROR "${program} printed: ${output}")
  endif()
endfunction()

if(NOT MODE STREQUAL "subproject")
  run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${FOLDER}/first)
  # Moved after installing: nothing may depend on where it was installed.
  file(RENAME ${FOLDER}/first ${FOLDER}/prefix)
endif()

if(MODE STREQUAL "find_package")
  run(${CMAKE_COMMAND} -S ${SOURCE}/examples -B ${FOLDER}/build ${configure_arguments}
    -DCMAKE_PREFIX_PATH=${FOLDER}/prefix)
  run(${CMAKE_COMMAND} --build ${FOLDER}/build --config ${CONFIG})
  run_embed(${FOLDER}/build/example_embed)
  run_embed(${FOLDER}/build/example_embed_static)
  run(${FOLDER}/build/example_first)
  run(${FOLDER}/prefix/bin/clattn --version)
elseif(MODE STREQUAL "pkg_config")
  file(GLOB_RECURSE pc ${FOLDER}/prefix/clattn.pc)
  get_filename_component(pc_folder ${pc} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_folder})
  run(pkg-config --validate clattn)
  get_filename_component(libdir ${pc_folder} DIRECTORY)
  foreach(kind shared static)
    set(static "")
    if(kind STREQUAL "static")
      set(static --static)
      file(GLOB shared ${libdir}/*.so*)
      file(REMOVE ${shared}) # so that -lclattn can only be the archive
    endif()
    run(pkg-config ${static} --cflags --libs clattn)
    separate_arguments(words UNIX_COMMAND "${output}")
    # One step, as a beginner does it: the flags give headers and libraries.
    run(${CC} ${flags} -std=c11 -DCL_TARGET_OPENCL_VERSION=120 ${SOURCE}/examples/embed.c -o ${FOLDER}/${kind} ${words} -lm)
    if(kind STREQUAL "shared")
      set(ENV{LD_LIBRARY_PATH} ${libdir})
    endif()
    run_embed(${FOLDER}/${kind})
  endforeach()
elseif(MODE STREQUAL "subproject")
  run(${CMAKE_COMMAND} -S ${SOURCE}/examples/subproject -B ${FOLDER}/build ${configure_arguments}
    -DCMAKE_PROJECT_clattn_subproject_INCLUDE=${SOURCE}/tests/subproject_guard.cmake)
  run(${CMAKE_COMMAND} --build ${FOLDER}/build --config ${CONFIG})
  run_embed(${FOLDER}/build/application)
else()
  message(FATAL_ERROR "MODE is ${MODE}")
endif()
