# SPDX-License-Identifier: Apache-2.0
# What cmake/embed.c makes of small inputs: cmake -DEMBED=<program> -DFOLDER=<scratch> -P test_embed.cmake
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})

function(embed expect_ok)
  execute_process(COMMAND ${EMBED} ${FOLDER} ${FOLDER}/out.c ${FOLDER}/out.h ${ARGN}
    RESULT_VARIABLE result ERROR_VARIABLE message)
  if(expect_ok AND NOT result EQUAL 0)
    message(FATAL_ERROR "embed ${ARGN} failed: ${message}")
  elseif(NOT expect_ok AND NOT result EQUAL 1)
    message(FATAL_ERROR "embed ${ARGN} gave ${result}, not 1")
  endif()
  set(message "${message}" PARENT_SCOPE)
endfunction()

function(expect_message text)
  string(FIND "${message}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "\"${text}\" is not in: ${message}")
  endif()
endfunction()

file(WRITE ${FOLDER}/low.cl.h "#ifndef LOW\n#define LOW\nint low;\n#endif\n")
file(WRITE ${FOLDER}/high.cl.h "#ifndef HIGH\n#define HIGH\n#include \"low.cl.h\"\nint high;\n#endif\n")
file(WRITE ${FOLDER}/two-words.cl "#include \"high.cl.h\"\n# include \"low.cl.h\" // once more\n/*\n#include \"none.h\"\n*/\nint end;")
embed(TRUE two-words.cl)

# The array's numbers, back as text.
file(READ ${FOLDER}/out.c source)
string(REGEX MATCH "clattni_kernel_two_words\\[\\] = {([0-9,\n]*)}" found "${source}")
string(REGEX MATCHALL "[0-9]+" numbers "${CMAKE_MATCH_1}")
list(POP_BACK numbers last)
if(NOT last EQUAL 0)
  message(FATAL_ERROR "the array does not end with 0")
endif()
set(text "")
foreach(number ${numbers})
  string(ASCII ${number} letter)
  string(APPEND text "${letter}")
endforeach()
set(expected [=[
#line 1 "kernels/two-words.cl"
#line 1 "kernels/high.cl.h"
#ifndef HIGH
#define HIGH
#line 1 "kernels/low.cl.h"
#ifndef LOW
#define LOW
int low;
#endif
#line 4 "kernels/high.cl.h"
int high;
#endif
#line 2 "kernels/two-words.cl"
#line 3 "kernels/two-words.cl"
/*
#include "none.h"
*/
int end;
]=])
if(NOT text STREQUAL expected)
  message(FATAL_ERROR "flattened text is\n${text}\ninstead of\n${expected}")
endif()
string(LENGTH "${text}" length)
string(FIND "${source}" "clattni_kernel_two_words_size = ${length};" at)
if(at EQUAL -1)
  message(FATAL_ERROR "the size ${length} is not in the source")
endif()

file(WRITE ${FOLDER}/lost.cl "int a;\n#include \"none.cl.h\"\n")
embed(FALSE lost.cl)
expect_message("kernels/lost.cl:2: \"none.cl.h\" can't be opened")
file(WRITE ${FOLDER}/maybe.cl "#if A\n#include \"low.cl.h\"\n#endif\n")
embed(FALSE maybe.cl)
expect_message("kernels/maybe.cl:2: an include inside #if")
file(WRITE ${FOLDER}/open.cl "#if A\n")
embed(FALSE open.cl)
expect_message("#if and #endif do not match")
embed(FALSE low.cl.h)
expect_message("not the name of a .cl file")
