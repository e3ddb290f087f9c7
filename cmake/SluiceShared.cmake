# libsluice.so and libsluice_cli.so, of the objects of the static libraries. They
# show what headers mark (engine/visibility.h) and nothing else; every version of
# Sluice has symbols of its own, since nothing is promised from one to the next.

set(version_script ${PROJECT_BINARY_DIR}/sluice.map)
file(CONFIGURE OUTPUT ${version_script} @ONLY CONTENT
"SLUICE_@PROJECT_VERSION@ {
  global:
    extern \"C++\" {
      sluice::*;
      typeinfo?for?sluice::*;
      typeinfo?name?for?sluice::*;
      vtable?for?sluice::*;
      VTT?for?sluice::*;
      guard?variable?for?sluice::*;
    };
  local: *;
};
")

# sluice_shared_library(<target> <static library> [<object library>...]) has all
# their objects.
function(sluice_shared_library target static)
  add_library(${target} SHARED $<TARGET_OBJECTS:${static}>)
  foreach(objects ${ARGN})
    if(TARGET ${objects})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${static} EXPORT_NAME shared LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    LINK_DEPENDS ${version_script}
    BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_options(${target} PRIVATE -Wl,-z,defs
    -Wl,--version-script=${version_script})
  # What the objects need: what the static library leaves to its user.
  get_target_property(needed ${static} LINK_LIBRARIES)
  list(FILTER needed EXCLUDE REGEX "BUILD_INTERFACE|^sluice$")
  target_link_libraries(${target} PRIVATE ${needed})
endfunction()

sluice_shared_library(sluice_shared sluice
  sluice_baseline sluice_avx2 sluice_avx512 sluice_proto)
add_library(sluice::shared ALIAS sluice_shared)
sluice_shared_library(sluice_cli_shared sluice_cli)
set_target_properties(sluice_cli_shared PROPERTIES EXPORT_NAME shared_cli)
target_link_libraries(sluice_cli_shared PUBLIC sluice_shared)
add_library(sluice::shared_cli ALIAS sluice_cli_shared)
