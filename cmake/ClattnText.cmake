# SPDX-License-Identifier: Apache-2.0
# clattn_embed_text(FILE NAME OUT): FILE as a byte array NAME_text with NAME_size, in generated/OUT.c and OUT.h.  Made when
# the build is configured, and again when the file changes.

function(clattn_embed_text file name out source_variable)
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  # lines of 24 bytes: compilers need no line of a megabyte
  string(REPEAT "0x..," 24 row)
  string(REGEX REPLACE "(${row})" "\\1\n" bytes "${bytes}")
  set(folder ${PROJECT_BINARY_DIR}/generated)
  file(CONFIGURE OUTPUT ${folder}/${out}.h CONTENT
    "extern const unsigned char ${name}_text[];\nextern const unsigned long ${name}_size;\n" @ONLY)
  file(CONFIGURE OUTPUT ${folder}/${out}.c CONTENT
    "#include \"${out}.h\"\nconst unsigned char ${name}_text[] = {\n${bytes}0};\nconst unsigned long ${name}_size = ${size};\n" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set(${source_variable} ${folder}/${out}.c ${folder}/${out}.h PARENT_SCOPE)
endfunction()
