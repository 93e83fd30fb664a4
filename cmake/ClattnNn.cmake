# SPDX-License-Identifier: Apache-2.0
# libclattn_nn: transformer pieces on top of libclattn's public interface.

file(GLOB CLATTN_NN_SOURCES CONFIGURE_DEPENDS host/nn/*.c)
list(FILTER CLATTN_NN_SOURCES EXCLUDE REGEX "/clblast(_none)?[.]c$")

if(CLATTN_WITH_CLBLAST)
  find_package(CLBlast QUIET)
  if(NOT TARGET clblast)
    message(FATAL_ERROR
      "CLATTN_WITH_CLBLAST needs CLBlast.\n"
      "On Debian and Ubuntu:  apt-get install libclblast-dev")
  endif()
  list(APPEND CLATTN_NN_SOURCES host/nn/clblast.c)
else()
  list(APPEND CLATTN_NN_SOURCES host/nn/clblast_none.c)
endif()

clattn_embed_kernels(nn_kernels_embedded nn/ CLATTN_NN_KERNEL_SOURCE CLATTN_NN_GENERATED_DIR)

add_library(clattn_nn_objects OBJECT ${CLATTN_NN_SOURCES} ${CLATTN_NN_KERNEL_SOURCE})
clattn_own_target(clattn_nn_objects)
set_target_properties(clattn_nn_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
# The kernel tables of both libraries have names of their own, so that both can be linked statically.
target_compile_definitions(clattn_nn_objects PRIVATE CLATTN_BUILDING CLATTN_NN_BUILDING
  clattni_kernel_files=nn_kernel_files clattni_kernel_file_count=nn_kernel_file_count)
target_include_directories(clattn_nn_objects PRIVATE host/include host/lib host/nn kernels ${CLATTN_NN_GENERATED_DIR})
target_link_libraries(clattn_nn_objects PRIVATE OpenCL::OpenCL)
if(CLATTN_WITH_CLBLAST)
  target_link_libraries(clattn_nn_objects PRIVATE clblast)
endif()

# os.c is the one file with calls of the operating system; libclattn hides its own.
add_library(clattn_nn SHARED $<TARGET_OBJECTS:clattn_nn_objects> host/lib/os.c)
add_library(clattn_nn_static STATIC $<TARGET_OBJECTS:clattn_nn_objects>)
set_target_properties(clattn_nn PROPERTIES C_VISIBILITY_PRESET hidden)
target_link_libraries(clattn_nn PUBLIC clattn)
target_link_libraries(clattn_nn_static PUBLIC clattn_static)
foreach(library clattn_nn clattn_nn_static)
  clattn_own_target(${library})
  add_library(clattn::${library} ALIAS ${library})
  target_link_libraries(${library} PRIVATE ${CLATTN_LIBM} Threads::Threads)
  if(CLATTN_WITH_CLBLAST)
    target_link_libraries(${library} PRIVATE clblast)
  endif()
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE C)
endforeach()
set_target_properties(clattn_nn PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(UNIX AND NOT APPLE AND NOT CLATTN_SANITIZE)
  target_link_options(clattn_nn PRIVATE LINKER:--no-undefined)
endif()
if(NOT WIN32)
  set_target_properties(clattn_nn_static PROPERTIES OUTPUT_NAME clattn_nn)
endif()
