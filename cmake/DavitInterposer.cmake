# SPDX-License-Identifier: Apache-2.0
# libdavit_mpi.so, to be preloaded or linked first: MPI's names over davit. It carries all rooms and shows MPI's names only.
option(DAVIT_BUILD_INTERPOSER "Build libdavit_mpi.so, which takes MPI_Alltoallv and its kin" ${PROJECT_IS_TOP_LEVEL})
if(DAVIT_BUILD_INTERPOSER)
  set(davit_exported ${PROJECT_SOURCE_DIR}/runtime/interposer/exported.map)
  add_library(davit_mpi SHARED runtime/interposer/interposer.cpp)
  davit_fill(davit_mpi)
  target_link_libraries(davit_mpi PRIVATE davit_headers davit_flags ${CMAKE_DL_LIBS})
  davit_sees(davit_mpi PRIVATE runtime)
  target_link_options(davit_mpi PRIVATE LINKER:--version-script=${davit_exported})
  set_target_properties(davit_mpi PROPERTIES
    LINK_DEPENDS ${davit_exported} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  install(TARGETS davit_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
