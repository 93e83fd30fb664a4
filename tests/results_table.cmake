# SPDX-License-Identifier: Apache-2.0
# README.md shows the table of a recorded comparison as bench/peers.py prints it.
# cmake -DROOT=... -DRECORD=bench/results/.../peers.json -P results_table.cmake
find_program(python NAMES python3)
if(NOT python)
  message("no python3: skipped")
  return()
endif()
execute_process(COMMAND ${python} ${ROOT}/bench/peers.py --table ${RECORD} WORKING_DIRECTORY ${ROOT}
  OUTPUT_VARIABLE table RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "bench/peers.py --table ${RECORD}: exit code ${status}")
endif()
file(READ ${ROOT}/README.md readme)
string(FIND "${readme}" "${table}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md does not show what bench/peers.py --table ${RECORD} prints:\n${table}")
endif()
