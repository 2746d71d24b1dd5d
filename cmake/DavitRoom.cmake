# SPDX-License-Identifier: Apache-2.0
# A room is a folder of sources built as an OBJECT library that sees the public headers and the rooms named in SEES.
# Internal headers are included as "transports/segment.hpp". The repository root is on no include path; instead each room
# has an include root of its own, a folder that holds one link to it, and a target gets only the roots of the rooms it
# may see. A wrong include therefore does not compile.

set(DAVIT_ARROWS_DIR ${PROJECT_BINARY_DIR}/arrows)
foreach(room bootstrap transports runtime tests examples)
  file(MAKE_DIRECTORY ${DAVIT_ARROWS_DIR}/${room})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${room} ${DAVIT_ARROWS_DIR}/${room}/${room} SYMBOLIC)
endforeach()

# Gives `target` the headers of the named rooms. SCOPE is PRIVATE or INTERFACE.
function(davit_sees target scope)
  foreach(room IN LISTS ARGN)
    target_include_directories(${target} ${scope} ${DAVIT_ARROWS_DIR}/${room})
  endforeach()
endfunction()

# davit_room(<target> SEES <rooms...> LINKS <targets...> SOURCES <files...>)
# The objects become part of the library: see DavitLibrary.cmake.
function(davit_room target)
  cmake_parse_arguments(PARSE_ARGV 1 room "" "" "SEES;LINKS;SOURCES")
  if(room_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "davit_room(${target}): what is '${room_UNPARSED_ARGUMENTS}'?")
  endif()
  add_library(${target} OBJECT ${room_SOURCES})
  target_link_libraries(${target} PRIVATE davit_headers davit_flags ${room_LINKS})
  davit_sees(${target} PRIVATE ${room_SEES})
  set_property(GLOBAL APPEND PROPERTY DAVIT_ROOMS ${target})
endfunction()
