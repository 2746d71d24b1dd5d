# SPDX-License-Identifier: Apache-2.0
# The library: all rooms in one, with the public headers. And davit_internal, for the tests and programs of this tree.

get_property(davit_rooms GLOBAL PROPERTY DAVIT_ROOMS)

# Fills a library target with the rooms and what they need. hwloc stays private: no public header shows it.
function(davit_fill target)
  foreach(room IN LISTS davit_rooms)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${room}>)
  endforeach()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_definitions(${target} PUBLIC OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  target_link_libraries(${target} PUBLIC MPI::MPI_C Threads::Threads PRIVATE PkgConfig::hwloc)
  if(DAVIT_HAS_CUDA)  # cudart in the archive form, never libcuda: the library must load where there is no driver
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
endfunction()

add_library(davit)
add_library(davit::davit ALIAS davit)
davit_fill(davit)
set_target_properties(davit PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  VERIFY_INTERFACE_HEADER_SETS ON)  # target davit_verify_interface_header_sets: each header compiles alone
target_sources(davit PUBLIC FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/include ${DAVIT_GENERATED_DIR}
  FILES ${DAVIT_PUBLIC_HEADERS})

# A shared libdavit hides its insides, so the tree's own programs take an archive of the same objects then.
add_library(davit_internal INTERFACE)
if(BUILD_SHARED_LIBS)
  add_library(davit_inside STATIC)
  davit_fill(davit_inside)
  target_link_libraries(davit_internal INTERFACE davit_inside)
else()
  target_link_libraries(davit_internal INTERFACE davit)
endif()
target_link_libraries(davit_internal INTERFACE davit_headers)
davit_sees(davit_internal INTERFACE runtime transports bootstrap)
