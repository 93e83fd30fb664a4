# SPDX-License-Identifier: Apache-2.0
# make install: headers, the libraries, the program, the CMake package and the pkg-config file.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(clattn_libraries clattn clattn_static)
if(CLATTN_BUILD_NN)
  list(APPEND clattn_libraries clattn_nn clattn_nn_static)
  install(FILES host/include/clattn_nn.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  # libclattn_nn finds libclattn beside it.
  set_target_properties(clattn_nn PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
install(TARGETS ${clattn_libraries} EXPORT clattnTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES host/include/clattn.h host/include/clattn_ref.h host/include/clattn_launches.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/rules.md docs/attention.md docs/attention.zh.md docs/heatmap.svg DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)

if(CLATTN_BUILD_CLI)
  file(RELATIVE_PATH clattn_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  # The installed program finds its library wherever the whole prefix is moved to.
  set_target_properties(clattn-cli PROPERTIES INSTALL_RPATH "$ORIGIN/${clattn_bin_to_lib}")
  install(TARGETS clattn-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(clattn_package ${CMAKE_INSTALL_LIBDIR}/cmake/clattn)
install(EXPORT clattnTargets NAMESPACE clattn:: DESTINATION ${clattn_package})
configure_package_config_file(cmake/clattnConfig.cmake.in ${PROJECT_BINARY_DIR}/generated/clattnConfig.cmake
  INSTALL_DESTINATION ${clattn_package})
# 0.x: a minor version may break callers, from 1.0 on only a major one.
set(clattn_compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(clattn_compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/clattnConfigVersion.cmake
  COMPATIBILITY ${clattn_compatibility})
install(FILES ${PROJECT_BINARY_DIR}/generated/clattnConfig.cmake
  ${PROJECT_BINARY_DIR}/generated/clattnConfigVersion.cmake DESTINATION ${clattn_package})

# The pkg-config files find themselves, so that a moved prefix works as well.
file(RELATIVE_PATH clattn_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH clattn_pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH clattn_pc_includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
string(REGEX REPLACE "/$" "" clattn_pc_prefix "${clattn_pc_prefix}")
set(clattn_pc_files clattn)
set(clattn_pc_private "")
if(CLATTN_WITH_CLBLAST)
  set(clattn_pc_private clblast)
endif()
if(CLATTN_BUILD_NN)
  list(APPEND clattn_pc_files clattn_nn)
endif()
foreach(file ${clattn_pc_files})
  configure_file(cmake/${file}.pc.in ${PROJECT_BINARY_DIR}/generated/${file}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/generated/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
