# cmake -D SOURCE=<root> -D TREE=<build>/include -D LIST=<file> -P this
#
# Writes the public header tree (see SluiceHeaders.cmake) for the headers that
# LIST names, one per line relative to SOURCE. A header whose text is unchanged
# keeps its time, and one that left the list is removed.

cmake_minimum_required(VERSION 3.25)

function(write_if_changed file text)
  set(old "")
  if(EXISTS ${file})
    file(READ ${file} old)
  endif()
  if(NOT old STREQUAL text)
    file(WRITE ${file} "${text}")
  endif()
endfunction()

file(STRINGS ${LIST} headers)
set(umbrella "// Everything in Sluice's public interface.
#ifndef SLUICE_SLUICE_H_
#define SLUICE_SLUICE_H_

")
foreach(header ${headers})
  file(READ ${SOURCE}/${header} text)
  string(REGEX MATCHALL "#[ \t]*include[ \t]*\"[^\"]+" includes "${text}")
  foreach(include ${includes})
    string(REGEX REPLACE ".*\"" "" include "${include}")
    if(NOT include IN_LIST headers)
      message(FATAL_ERROR "${header} is public and includes ${include}, which "
        "is not: see cmake/SluicePublicHeaders.cmake")
    endif()
  endforeach()
  string(REGEX REPLACE "(#[ \t]*include[ \t]*\")([a-z_]+/)" "\\1sluice/\\2"
    text "${text}")
  write_if_changed(${TREE}/sluice/${header} "${text}")
  string(APPEND umbrella "#include \"sluice/${header}\"\n")
endforeach()
string(APPEND umbrella "\n#endif  // SLUICE_SLUICE_H_\n")
write_if_changed(${TREE}/sluice/sluice.h "${umbrella}")

file(GLOB_RECURSE stale RELATIVE ${TREE}/sluice ${TREE}/sluice/*.h)
list(REMOVE_ITEM stale sluice.h ${headers})
list(TRANSFORM stale PREPEND ${TREE}/sluice/)
if(stale)
  file(REMOVE ${stale})
endif()
