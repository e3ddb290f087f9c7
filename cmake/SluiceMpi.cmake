# libsluice_mpi.so, MPI's calls (dist/mpi/calls.h): loaded where MPI is asked for,
# so that nothing else needs an MPI. Not in the Debian package, which is for any
# machine; `cmake --install` has it.
set(MPI_CXX_SKIP_MPICXX ON)
if(SLUICE_WITH_MPI)
  find_package(MPI 3.0 COMPONENTS CXX QUIET)
endif()
if(NOT MPI_CXX_FOUND)
  message(STATUS "sluice: MPI was not found, or is switched off: no "
    "--transport mpi")
  return()
endif()
add_library(sluice_mpi MODULE
  ${PROJECT_SOURCE_DIR}/dist/mpi/module/mpi_module.cc)
sluice_visibility(sluice_mpi)
target_include_directories(sluice_mpi PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(sluice_mpi PRIVATE sluice_warnings MPI::MPI_CXX)
set_target_properties(sluice_mpi PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
target_link_options(sluice_mpi PRIVATE -Wl,-z,defs)
install(TARGETS sluice_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT mpi)
