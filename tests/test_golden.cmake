# SPDX-License-Identifier: Apache-2.0
# The clattn program on a real model's queries, keys and values: all 6 layers and 12 heads against the golden arrays.
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${CLATTN} run --q ${DATA}/q.npy --k ${DATA}/k.npy --v ${DATA}/v.npy --out ${FOLDER}/out.npy
  --weights ${FOLDER}/weights.npy --lse ${FOLDER}/lse.npy COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NPY_TOOL} compare ${FOLDER}/weights.npy ${DATA}/attn.npy 5e-6 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NPY_TOOL} compare ${FOLDER}/out.npy ${DATA}/ctx.npy 1e-5 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NPY_TOOL} compare-lse ${FOLDER}/lse.npy ${DATA}/q.npy ${DATA}/k.npy 5e-6
  COMMAND_ERROR_IS_FATAL ANY)
# The tool itself must be able to say no.
execute_process(COMMAND ${NPY_TOOL} compare ${FOLDER}/out.npy ${DATA}/v.npy 1e-5 RESULT_VARIABLE result)
if(NOT result EQUAL 1)
  message(FATAL_ERROR "npy_tool found v equal to the output")
endif()

# The picture that README.md shows.
set(words "[CLS],tom,chase,jerry,[SEP]")
execute_process(COMMAND ${CLATTN} run --q ${DATA}/q.npy --k ${DATA}/k.npy --v ${DATA}/v.npy --heat 1,8
  --q-labels ${words} --k-labels ${words} OUTPUT_VARIABLE picture COMMAND_ERROR_IS_FATAL ANY)
file(READ ${README} readme)
if(NOT readme MATCHES "<!-- heat map -->\n```\n(.*)```\n<!-- end of heat map -->")
  message(FATAL_ERROR "README.md has no heat map")
endif()
set(shown "${CMAKE_MATCH_1}")
string(REGEX REPLACE " +\n" "\n" picture "${picture}")
string(FIND "${picture}" "${shown}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md shows\n${shown}\nbut the program prints\n${picture}")
endif()
