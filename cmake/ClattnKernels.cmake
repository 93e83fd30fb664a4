# SPDX-License-Identifier: Apache-2.0
# Embeds every kernels/*.cl (kernels/PART/*.cl) as a byte array, with its headers flattened in (see embed.c).  A new
# kernel file is found by itself; a changed header embeds the kernels again.  The files are called "name" or "PART/name";
# NAME.c and NAME.h are generated.

function(clattn_embed_kernels name part source_variable folder_variable)
  set(folder ${PROJECT_SOURCE_DIR}/kernels)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  file(GLOB kernels RELATIVE ${folder} CONFIGURE_DEPENDS ${folder}/${part}*.cl)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.cl.h ${folder}/${part}*.cl.h)
  list(SORT kernels)
  list(TRANSFORM kernels PREPEND ${folder}/ OUTPUT_VARIABLE paths)
  if(CLATTN_EMBED)
    set(embed ${CLATTN_EMBED})
  elseif(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "Cross-compiling: build cmake/embed.c for this machine and pass -DCLATTN_EMBED=<its path>.")
  else()
    if(NOT TARGET clattn_embed)
      add_executable(clattn_embed ${PROJECT_SOURCE_DIR}/cmake/embed.c)
      clattn_own_target(clattn_embed)
      set_target_properties(clattn_embed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
    endif()
    set(embed clattn_embed)
  endif()
  file(MAKE_DIRECTORY ${generated})
  add_custom_command(
    OUTPUT ${generated}/${name}.c ${generated}/${name}.h
    COMMAND ${embed} ${folder} ${generated}/${name}.c ${generated}/${name}.h ${kernels}
    DEPENDS ${embed} ${paths} ${headers}
    COMMENT "Embedding kernels/${part}*.cl"
    VERBATIM)
  set(${source_variable} ${generated}/${name}.c ${generated}/${name}.h PARENT_SCOPE)
  set(${folder_variable} ${generated} PARENT_SCOPE)
endfunction()
