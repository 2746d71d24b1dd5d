# SPDX-License-Identifier: Apache-2.0
# libdavit_mpi.so, to be preloaded or linked first: MPI's names over davit. It carries all rooms and shows MPI's names only.
option(DAVIT_BUILD_INTERPOSER "Build libdavit_mpi.so, which takes MPI_Alltoallv and its kin" ${PROJECT_IS_TOP_LEVEL})
if(DAVIT_BUILD_INTERPOSER)
  set(davit_exported ${PROJECT_SOURCE_DIR}/runtime/interposer/exported.map)
  add_library(davit_mpi SHARED
    runtime/interposer/batch.cpp
    runtime/interposer/completion.cpp
    runtime/interposer/interposer.cpp
    runtime/interposer/nonblocking.cpp
    runtime/interposer/pending.cpp)
  # Forms that not every MPI library has.
  include(CheckSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
  check_symbol_exists(MPI_Alltoallv_init mpi.h DAVIT_MPI_HAS_PERSISTENT)
  check_symbol_exists(MPI_Alltoallv_c mpi.h DAVIT_MPI_HAS_LARGE_COUNT)
  check_symbol_exists(MPIX_Alltoallv_init "mpi.h;mpi-ext.h" DAVIT_MPI_HAS_PERSISTENT_EXTENSION)
  unset(CMAKE_REQUIRED_LIBRARIES)
  target_sources(davit_mpi PRIVATE
    $<$<BOOL:${DAVIT_MPI_HAS_PERSISTENT}>:runtime/interposer/persistent.cpp>
    $<$<BOOL:${DAVIT_MPI_HAS_PERSISTENT_EXTENSION}>:runtime/interposer/persistent_mpix.cpp>
    $<$<BOOL:${DAVIT_MPI_HAS_LARGE_COUNT}>:runtime/interposer/large_count.cpp>)
  davit_fill(davit_mpi)
  target_link_libraries(davit_mpi PRIVATE davit_headers davit_flags ${CMAKE_DL_LIBS})
  davit_sees(davit_mpi PRIVATE runtime transports bootstrap)
  target_compile_options(davit_mpi PRIVATE -ftls-model=initial-exec)
  target_link_options(davit_mpi PRIVATE LINKER:--version-script=${davit_exported})
  set_target_properties(davit_mpi PROPERTIES
    LINK_DEPENDS ${davit_exported} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  install(TARGETS davit_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # For an example, and tests.
  include(CheckLanguage)
  check_language(Fortran)
  if(CMAKE_Fortran_COMPILER AND (DAVIT_BUILD_TESTS OR DAVIT_BUILD_EXAMPLES))
    enable_language(Fortran)
    find_package(MPI COMPONENTS Fortran)
  endif()
endif()
