# SPDX-License-Identifier: Apache-2.0
# Target `davit_docs` and test `docs`: Doxygen over the public headers, warnings as errors. Where Doxygen is absent the test
# says so, and is skipped.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
find_program(DAVIT_DOXYGEN doxygen)
configure_file(cmake/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
set(davit_docs ${CMAKE_COMMAND} -E echo "doxygen not found: the documentation was NOT checked")
if(DAVIT_DOXYGEN)
  set(davit_docs ${DAVIT_DOXYGEN} ${PROJECT_BINARY_DIR}/Doxyfile)
endif()
add_custom_target(davit_docs COMMAND ${davit_docs} VERBATIM)
if(DAVIT_BUILD_TESTS)
  add_test(NAME docs COMMAND ${davit_docs})
  set_tests_properties(docs PROPERTIES LABELS docs SKIP_REGULAR_EXPRESSION "NOT checked")
endif()
