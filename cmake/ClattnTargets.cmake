# SPDX-License-Identifier: Apache-2.0
# What all targets of this project have in common, set on the targets alone so that a parent project keeps its settings.

function(clattn_own_target target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_definitions(${target} PRIVATE CL_TARGET_OPENCL_VERSION=120)
  if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    if(CLATTN_TOP_LEVEL)
      target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
        -Wmissing-prototypes -Wvla $<$<BOOL:${CLATTN_WERROR}>:-Werror>)
    endif()
    if(CLATTN_SANITIZE)
      target_compile_options(${target} PRIVATE -fsanitize=${CLATTN_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer -g)
      # PUBLIC: whatever links the static library needs the sanitizer's run-time library too.
      target_link_options(${target} PUBLIC -fsanitize=${CLATTN_SANITIZE})
    endif()
  endif()
endfunction()
