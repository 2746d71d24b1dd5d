# SPDX-License-Identifier: Apache-2.0
# cmake --install: headers, library, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)
set(davit_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/davit)

install(TARGETS davit EXPORT davitTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT davitTargets NAMESPACE davit:: DESTINATION ${davit_package_dir})
configure_package_config_file(cmake/davitConfig.cmake.in ${PROJECT_BINARY_DIR}/davitConfig.cmake
  INSTALL_DESTINATION ${davit_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/davitConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/davitConfig.cmake ${PROJECT_BINARY_DIR}/davitConfigVersion.cmake
  DESTINATION ${davit_package_dir})

# davit.pc. MPI's flags stand in it as found, since the name of MPI's own .pc file differs from one MPI to the next.
# hwloc is needed at link time by an archive only; its own static needs (udev, ...) are not, as hwloc itself is shared.
set(davit_pc_cflags "")
foreach(dir IN LISTS MPI_C_INCLUDE_DIRS)
  string(APPEND davit_pc_cflags " -I${dir}")
endforeach()
set(davit_pc_libs "")
foreach(library IN LISTS MPI_C_LIBRARIES)
  string(APPEND davit_pc_libs " ${library}")
endforeach()
list(JOIN hwloc_LDFLAGS " " davit_pc_libs_private)
if(BUILD_SHARED_LIBS)
  string(APPEND davit_pc_libs_private " -pthread")  # named for completeness: the shared library carries them
else()
  string(APPEND davit_pc_libs_private " -lstdc++ -pthread")
endif()
if(DAVIT_HAS_CUDA AND NOT BUILD_SHARED_LIBS)
  string(APPEND davit_pc_libs_private " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
# The prefix is found from where the file lies, so that `cmake --install --prefix` and moved packages work.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(davit_pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH davit_pc_up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" davit_pc_up "${davit_pc_up}")
  set(davit_pc_prefix "\${pcfiledir}/${davit_pc_up}")
endif()
configure_file(cmake/davit.pc.in ${PROJECT_BINARY_DIR}/davit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/davit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
