# SPDX-License-Identifier: Apache-2.0
# README.md shows the table of kernels for GPUs as bench/gpu-static/model prints it from the recorded figures, and says
# what such figures are.
# cmake -DROOT=... -P gpu_table.cmake
find_program(python NAMES python3)
if(NOT python)
  message("no python3: skipped")
  return()
endif()
execute_process(COMMAND ${python} ${ROOT}/bench/gpu-static/model --readme OUTPUT_VARIABLE table RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR table STREQUAL "")
  message(FATAL_ERROR "bench/gpu-static/model --readme: exit code ${status}")
endif()
file(READ ${ROOT}/README.md readme)
foreach(text IN ITEMS "${table}" "compiled and modelled, not measured")
  string(FIND "${readme}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "README.md does not have this:\n${text}")
  endif()
endforeach()
