# SPDX-License-Identifier: Apache-2.0
# The CUDA backend is a folder that is built or not: transports/cuda. It adds its rooms with davit_room(), and the factory
# learns of it by DAVIT_HAS_CUDA.

set(DAVIT_HAS_CUDA OFF)
if(DAVIT_WITH_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(EXISTS ${PROJECT_SOURCE_DIR}/transports/cuda/CMakeLists.txt)
      set(DAVIT_HAS_CUDA ON)
    else()
      message(STATUS "davit: CUDA compiler found, but there is no CUDA backend to build yet")
    endif()
  elseif(DAVIT_WITH_CUDA STREQUAL "AUTO")
    message(STATUS "davit: no CUDA compiler, building without the CUDA backend")
  else()
    message(FATAL_ERROR "DAVIT_WITH_CUDA=${DAVIT_WITH_CUDA}, but no CUDA compiler was found: put nvcc on the PATH, set "
                        "CUDACXX, or configure with -DDAVIT_WITH_CUDA=OFF")
  endif()
endif()

if(DAVIT_HAS_CUDA)
  # Machine code for Ampere, Ada and Hopper, data centre and consumer; what is newer translates the last one's PTX when it
  # starts.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-real;86-real;89-real;90" CACHE STRING "GPU architectures to build for")
  endif()
  enable_language(CUDA)
  # CMake before 3.25.2 does not know that nvcc speaks C++20, and would silently compile as C++17.
  if(CMAKE_VERSION VERSION_LESS 3.25.2)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  # As for C++: warnings, and no fused multiply-add where one is not asked for.
  target_compile_options(davit_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow>
    $<$<AND:$<BOOL:${DAVIT_WARNINGS_AS_ERRORS}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
  find_package(CUDAToolkit 12.8 REQUIRED)
  add_subdirectory(transports/cuda)
  target_compile_definitions(davit_factory PRIVATE DAVIT_HAS_CUDA=1)
endif()
