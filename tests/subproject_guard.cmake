# SPDX-License-Identifier: Apache-2.0
# Included in the parent project's project() call by test_example.cmake: after the parent's CMakeLists.txt is done,
# checks that clattn left its settings alone and made nothing but its libraries.

set(CMAKE_C_STANDARD 99)
set(guard_variables CMAKE_C_STANDARD CMAKE_C_EXTENSIONS CMAKE_C_FLAGS CMAKE_C_FLAGS_RELEASE CMAKE_BUILD_TYPE
  CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_LIBRARY_OUTPUT_DIRECTORY CMAKE_ARCHIVE_OUTPUT_DIRECTORY CMAKE_MODULE_PATH
  CMAKE_POSITION_INDEPENDENT_CODE CMAKE_C_VISIBILITY_PRESET CMAKE_INSTALL_PREFIX CMAKE_INSTALL_LIBDIR BUILD_SHARED_LIBS
  BUILD_TESTING THREADS_PREFER_PTHREAD_FLAG PROJECT_NAME)
set(guard_properties COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES LINK_OPTIONS LINK_LIBRARIES)

macro(guard_read prefix)
  foreach(name ${guard_variables})
    set(${prefix}_${name} "unset")
    if(DEFINED ${name})
      set(${prefix}_${name} "set to ${${name}}")
    endif()
  endforeach()
  foreach(name ${guard_properties})
    get_directory_property(${prefix}_${name} ${name})
  endforeach()
endmacro()
guard_read(before)

function(guard_check)
  guard_read(after)
  foreach(name ${guard_variables} ${guard_properties})
    if(NOT "${before_${name}}" STREQUAL "${after_${name}}")
      message(FATAL_ERROR "clattn changed ${name}: before ${before_${name}}, after ${after_${name}}")
    endif()
  endforeach()
  get_directory_property(targets DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/clattn BUILDSYSTEM_TARGETS)
  set(expected clattn clattn_embed clattn_objects clattn_static)
  list(SORT targets)
  if(NOT targets STREQUAL expected)
    message(FATAL_ERROR "clattn made the targets ${targets} instead of ${expected}")
  endif()
  get_directory_property(below DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/clattn SUBDIRECTORIES)
  if(below)
    message(FATAL_ERROR "clattn added ${below}")
  endif()
endfunction()
cmake_language(DEFER CALL guard_check)
