# The users' view of the headers, and the installed package.
#
# Every public header appears as <build>/include/sluice/<path> with its includes
# rewritten from "engine/x.h" to "sluice/engine/x.h", and sluice/sluice.h includes
# them all. The tree is written when CMake runs and again, during a build, when a
# header has changed.

include(SluicePublicHeaders)
set(public_headers ${SLUICE_PUBLIC_HEADERS})

set(SLUICE_HEADER_TREE ${PROJECT_BINARY_DIR}/include)
set(header_list ${PROJECT_BINARY_DIR}/public_headers.txt)
list(JOIN public_headers "\n" header_lines)
file(CONFIGURE OUTPUT ${header_list} CONTENT "${header_lines}\n" @ONLY)
set(write_headers ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR}
  -D TREE=${SLUICE_HEADER_TREE} -D LIST=${header_list}
  -P ${CMAKE_CURRENT_LIST_DIR}/write_headers.cmake)
execute_process(COMMAND ${write_headers} COMMAND_ERROR_IS_FATAL ANY)

list(TRANSFORM public_headers PREPEND ${PROJECT_SOURCE_DIR}/
  OUTPUT_VARIABLE header_files)
set(header_stamp ${PROJECT_BINARY_DIR}/public_headers.stamp)
add_custom_command(OUTPUT ${header_stamp}
  COMMAND ${write_headers}
  COMMAND ${CMAKE_COMMAND} -E touch ${header_stamp}
  DEPENDS ${header_files} ${header_list}
          ${CMAKE_CURRENT_LIST_DIR}/write_headers.cmake
  COMMENT "Writing the public header tree" VERBATIM)
add_custom_target(sluice_headers ALL DEPENDS ${header_stamp})
add_dependencies(sluice sluice_headers)

foreach(library sluice sluice_shared)
  if(TARGET ${library})
    target_include_directories(${library} PUBLIC
      $<BUILD_INTERFACE:${SLUICE_HEADER_TREE}>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endif()
endforeach()

# A project that adds this one with add_subdirectory installs itself, not us.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)

# A static library leaves linking what it uses to its user: by feature what has
# to be found, and Debian's package that it is in (SluicePackage.cmake).
set(package_dependencies Threads fmt ZLIB)
set(package_suggestions libfmt-dev zlib1g-dev)
foreach(used PROTOBUF:Protobuf:libprotobuf-dev PNG:PNG:libpng-dev
    JPEG:JPEG:libjpeg62-turbo-dev ONEDNN:dnnl:libdnnl-dev
    CURL:CURL:libcurl4-openssl-dev CRYPTO:OpenSSL:libssl-dev
    TLS:OpenSSL:libssl-dev EXPAT:EXPAT:libexpat1-dev)
  string(REPLACE ":" ";" used ${used})
  list(GET used 0 feature)
  list(GET used 1 package)
  list(GET used 2 suggestion)
  if(feature IN_LIST SLUICE_FEATURES)
    list(APPEND package_dependencies ${package})
    list(APPEND package_suggestions ${suggestion})
  endif()
endforeach()
list(REMOVE_DUPLICATES package_dependencies)
list(REMOVE_DUPLICATES package_suggestions)
list(JOIN package_dependencies " " package_dependencies)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/sluiceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/sluiceConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/sluiceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

# Two packages: `runtime`, the programs and what they load, and `development`.
set(in_development DESTINATION ${package_folder} COMPONENT development)
if(TARGET sluice_shared)
  install(TARGETS sluice_shared sluice_cli_shared EXPORT sluiceSharedTargets
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
  install(EXPORT sluiceSharedTargets NAMESPACE sluice:: ${in_development})
endif()
install(TARGETS sluice sluice_cli EXPORT sluiceStaticTargets
  ARCHIVE COMPONENT development)
install(EXPORT sluiceStaticTargets NAMESPACE sluice:: ${in_development})
install(DIRECTORY ${SLUICE_HEADER_TREE}/sluice
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/sluiceConfig.cmake
              ${PROJECT_BINARY_DIR}/sluiceConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/Finddnnl.cmake
  ${in_development})
