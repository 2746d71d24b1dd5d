# SPDX-License-Identifier: Apache-2.0
# davit_test(NAME <name> SOURCES <files...> [LINKS <targets...>] [LABELS <labels...>] [TIMEOUT <seconds>])
#   A GoogleTest program whose ranks are threads; one ctest, labelled `threads` besides LABELS.
# davit_test_on_devices(<name>)
#   The same program again, as <name>.device and <name>.mixed, with the ranks' buffers on stand-ins for GPUs.
# davit_test_on_nodes(<name> [helper] [caller])
#   The same program again, as <name>.nodes_helper and <name>.nodes_caller, with the ranks on two pretended nodes; who gets
#   on with the wire.
# davit_mpi_test(NAME <name> SOURCES <files...> RANKS <n...> [LINKS ...] [LABELS ...] [TIMEOUT <seconds>]
#                [ENVIRONMENT <k=v...>] [MPIRUN_ARGS <args...>])
#   A GoogleTest program under mpirun, with tests/mpi_main.cpp as main; one ctest a rank count, `<name>.<n>_ranks`,
#   labelled `mpi` besides LABELS.
# davit_mpi_run(NAME <name> PROGRAM <name of a davit_mpi_test> RANKS <n...> [LABELS ...] [TIMEOUT ...] [ENVIRONMENT ...]
#               [MPIRUN_ARGS ...])
#   The same program once more, in another environment.
# All link davit_internal: tests may see every room. Headers of the tests are included as "tests/...".

# Open MPI refuses root and more ranks than cores unless told otherwise.
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE davit_mpiexec_version ERROR_QUIET)
set(DAVIT_MPIRUN ${MPIEXEC_EXECUTABLE})
if(davit_mpiexec_version MATCHES "Open MPI|OpenRTE")
  set(DAVIT_OPEN_MPI ON)
  list(APPEND DAVIT_MPIRUN --allow-run-as-root --oversubscribe --bind-to none)
endif()

set(DAVIT_TEST_LAUNCHER "")
set(DAVIT_TEST_ENVIRONMENT "")
# Tests have more ranks than cores, together if not each: an Open MPI that spins keeps the awaited rank from running.
set(DAVIT_MPI_ENVIRONMENT "OMPI_MCA_mpi_yield_when_idle=1")
if(DAVIT_SANITIZE STREQUAL "thread")
  set(DAVIT_TEST_ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp:second_deadlock_stack=1")
  # With many bits of address randomisation GCC's thread sanitizer does not start at all.
  find_program(DAVIT_SETARCH setarch)
  if(DAVIT_SETARCH)
    execute_process(COMMAND ${DAVIT_SETARCH} -R true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(refused EQUAL 0)
      set(DAVIT_TEST_LAUNCHER ${DAVIT_SETARCH} -R)
    endif()
  endif()
endif()

function(davit_test_program)
  add_executable(${test_NAME} ${test_SOURCES} ${ARGN})
  target_link_libraries(${test_NAME} PRIVATE davit_internal davit_flags GTest::gtest ${test_LINKS})
  davit_sees(${test_NAME} PRIVATE tests)
  set_target_properties(${test_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
  if(test_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "test ${test_NAME}: what is '${test_UNPARSED_ARGUMENTS}'?")
  endif()
endfunction()

function(davit_test)
  cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME;TIMEOUT" "SOURCES;LINKS;LABELS")
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 120)
  endif()
  list(APPEND test_LINKS GTest::gtest_main)
  davit_test_program()
  add_test(NAME ${test_NAME} COMMAND ${DAVIT_TEST_LAUNCHER} $<TARGET_FILE:${test_NAME}>)
  set_tests_properties(${test_NAME} PROPERTIES
    LABELS "threads;${test_LABELS}" TIMEOUT ${test_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${DAVIT_TEST_ENVIRONMENT}")
endfunction()

function(davit_test_on_devices name)
  get_test_property(${name} TIMEOUT timeout)
  foreach(memory device mixed)
    add_test(NAME ${name}.${memory} COMMAND ${DAVIT_TEST_LAUNCHER} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.${memory} PROPERTIES
      LABELS "threads" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
      ENVIRONMENT "${DAVIT_TEST_ENVIRONMENT};DAVIT_TEST_MEMORY=${memory}")
  endforeach()
endfunction()

function(davit_test_on_nodes name)
  get_test_property(${name} TIMEOUT timeout)
  foreach(wire IN LISTS ARGN)
    add_test(NAME ${name}.nodes_${wire} COMMAND ${DAVIT_TEST_LAUNCHER} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.nodes_${wire} PROPERTIES
      LABELS "threads" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
      ENVIRONMENT "${DAVIT_TEST_ENVIRONMENT};DAVIT_TEST_NODES=2;DAVIT_TEST_WIRE=${wire}")
  endforeach()
endfunction()

function(davit_mpi_test)
  cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME;TIMEOUT" "SOURCES;LINKS;LABELS;RANKS;ENVIRONMENT;MPIRUN_ARGS")
  davit_test_program(${PROJECT_SOURCE_DIR}/tests/mpi_main.cpp)
  davit_mpi_ctest(${test_NAME})
endfunction()

function(davit_mpi_run)
  cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME;PROGRAM;TIMEOUT" "LABELS;RANKS;ENVIRONMENT;MPIRUN_ARGS")
  davit_mpi_ctest(${test_PROGRAM})
endfunction()

function(davit_mpi_ctest program)
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 120)
  endif()
  # mpirun's own time-out leaves no rank behind; ctest's is for an mpirun that hangs itself.
  set(limit "")
  if(DAVIT_OPEN_MPI)
    set(limit --timeout ${test_TIMEOUT})
  endif()
  math(EXPR ctest_timeout "${test_TIMEOUT} + 15")
  foreach(ranks IN LISTS test_RANKS)
    set(name ${test_NAME}.${ranks}_ranks)
    add_test(NAME ${name} COMMAND ${DAVIT_MPIRUN} ${limit} ${test_MPIRUN_ARGS} -n ${ranks} ${DAVIT_TEST_LAUNCHER}
                                  $<TARGET_FILE:${program}>)
    # PROCESSORS keeps heavy tests from running at once. Open MPI leaks by design, which is not ours to report.
    set_tests_properties(${name} PROPERTIES
      LABELS "mpi;${test_LABELS}" TIMEOUT ${ctest_timeout} PROCESSORS 2 SKIP_RETURN_CODE 77
      ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0;${DAVIT_MPI_ENVIRONMENT};${DAVIT_TEST_ENVIRONMENT};${test_ENVIRONMENT}")
  endforeach()
endfunction()
