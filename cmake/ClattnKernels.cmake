# SPDX-License-Identifier: Apache-2.0
# Embeds every kernels/*.cl as a byte array, with its headers flattened in (see embed.c).  A new kernel file is found by
# itself; a changed header embeds the kernels again.

function(clattn_embed_kernels source_variable folder_variable)
  set(folder ${PROJECT_SOURCE_DIR}/kernels)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  file(GLOB kernels RELATIVE ${folder} CONFIGURE_DEPENDS ${folder}/*.cl)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.cl.h)
  list(SORT kernels)
  list(TRANSFORM kernels PREPEND ${folder}/ OUTPUT_VARIABLE paths)
  if(CLATTN_EMBED)
    set(embed ${CLATTN_EMBED})
  elseif(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "Cross-compiling: build cmake/embed.c for this machine and pass -DCLATTN_EMBED=<its path>.")
  else()
    add_executable(clattn_embed ${PROJECT_SOURCE_DIR}/cmake/embed.c)
    clattn_own_target(clattn_embed)
    set_target_properties(clattn_embed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
    set(embed clattn_embed)
  endif()
  file(MAKE_DIRECTORY ${generated})
  add_custom_command(
    OUTPUT ${generated}/kernels_embedded.c ${generated}/kernels_embedded.h
    COMMAND ${embed} ${folder} ${generated}/kernels_embedded.c ${generated}/kernels_embedded.h ${kernels}
    DEPENDS ${embed} ${paths} ${headers}
    COMMENT "Embedding kernels"
    VERBATIM)
  set(${source_variable} ${generated}/kernels_embedded.c ${generated}/kernels_embedded.h PARENT_SCOPE)
  set(${folder_variable} ${generated} PARENT_SCOPE)
endfunction()
