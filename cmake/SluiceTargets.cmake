# Compile settings that every target of ours shares, and the source lists.

add_library(sluice_warnings INTERFACE)
target_compile_options(sluice_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${PROJECT_IS_TOP_LEVEL}>:-Werror>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-missing-field-initializers>
  # g++ 12 warns of "a" + std::string at -O2 and above (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # At -O1 it takes the alternatives of a variant for read before they are set.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Release>>>:-Wno-maybe-uninitialized>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-field-initializers -Wthread-safety>)
if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()

# sluice_precompile(<target> <header>...): what most files include, the standard
# library and fmt, and these headers are parsed once for the target. Large
# ones cost more than they save: g++ reads all of them for every file (with
# nlohmann/json.hpp the tests took 17 % longer to compile, CLI11 quadruples a
# small file).
# sluice_precompile(<target> REUSE <other>): or once for both. Files still include
# what they use: builds without (stage `minimal`) would not compile.
function(sluice_precompile target)
  if(NOT SLUICE_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" REUSE "")
  if(arg_REUSE)
    target_precompile_headers(${target} REUSE_FROM ${arg_REUSE})
  else()
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <functional> <map>
      <memory> <optional> <set> <span> <string> <string_view> <thread>
      <unordered_map> <utility> <vector> <fmt/format.h> ${ARGN})
  endif()
  # g++ 12 then takes the standard library's headers for ours and warns of what
  # its string might copy; the build without still has these warnings.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow -Wno-array-bounds>)
  # What ccache wants to know of them; it needs CCACHE_SLOPPINESS, too
  # (.ci/run).
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()

# The program, installed, finds libraries in the prefix it lies in, wherever that
# is moved: those it needs, and those that these need, which may be copies of the
# system's that have no path of their own (scripts/package.sh). Only the old kind
# of path (DT_RPATH) is searched for the latter, too; the linker's default,
# DT_RUNPATH, is for what a file needs itself (ld.so(8)).
file(RELATIVE_PATH library_from_programs
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
function(sluice_relocatable program)
  set_target_properties(${program} PROPERTIES
    BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN/${library_from_programs}")
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endfunction()
# A benchmark or test that scripts/package.sh packs beside the programs.
function(sluice_pack program)
  sluice_relocatable(${program})
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    COMPONENT measuring EXCLUDE_FROM_ALL)
endfunction()

# What a program and a module it loads must agree on: the engine's interfaces.
# Gives the definition SLUICE_BUILD_ID to the files.
function(sluice_build_id)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/*.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
  set(hashes "")
  foreach(header ${headers})
    file(SHA256 ${header} hash)
    string(APPEND hashes ${hash})
  endforeach()
  string(SHA256 hash "${hashes}")
  string(SUBSTRING ${hash} 0 12 hash)
  set_property(SOURCE ${ARGN} APPEND PROPERTY
    COMPILE_DEFINITIONS SLUICE_BUILD_ID="${PROJECT_VERSION}-${hash}")
endfunction()

# A library's objects serve the static and the shared one alike, and show what
# headers mark (engine/visibility.h).
function(sluice_visibility target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# Includes, defines and libraries of the library target.
function(sluice_configure target)
  sluice_visibility(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target}
    PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${target}
    PRIVATE $<BUILD_INTERFACE:sluice_warnings> $<BUILD_INTERFACE:Eigen3::Eigen>
            $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
            fmt::fmt ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_definitions(${target} PRIVATE
    SLUICE_VERSION="${PROJECT_VERSION}" EIGEN_MPL2_ONLY
    EIGEN_DONT_PARALLELIZE)
  set(features ${SLUICE_FEATURES})
  list(REMOVE_ITEM features CURL CRYPTO EXPAT TLS)
  foreach(feature ${features})
    target_compile_definitions(${target} PRIVATE SLUICE_HAVE_${feature}=1)
  endforeach()
  sluice_remote_features(${PROJECT_SOURCE_DIR}/io/remote)
  if("TLS" IN_LIST SLUICE_FEATURES)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/dist/net/authority.cc
      ${PROJECT_SOURCE_DIR}/dist/net/tls.cc
      APPEND PROPERTY COMPILE_DEFINITIONS SLUICE_HAVE_TLS=1)
    target_link_libraries(${target} PRIVATE OpenSSL::SSL OpenSSL::Crypto)
  endif()
  if("PROTOBUF" IN_LIST SLUICE_FEATURES)
    sluice_protobuf(${target})
  endif()
  if("PNG" IN_LIST SLUICE_FEATURES)
    target_link_libraries(${target} PRIVATE PNG::PNG)
  endif()
  if("ONEDNN" IN_LIST SLUICE_FEATURES)
    target_link_libraries(${target} PRIVATE DNNL::dnnl ${CMAKE_DL_LIBS})
  endif()
  if("JPEG" IN_LIST SLUICE_FEATURES)
    target_link_libraries(${target} PRIVATE JPEG::JPEG)
  endif()
  if("CURL" IN_LIST SLUICE_FEATURES)
    target_link_libraries(${target} PRIVATE CURL::libcurl)
  endif()
  if("CRYPTO" IN_LIST SLUICE_FEATURES)
    target_link_libraries(${target} PRIVATE OpenSSL::Crypto)
  endif()
  if("EXPAT" IN_LIST SLUICE_FEATURES)
    target_link_libraries(${target} PRIVATE EXPAT::EXPAT)
  endif()
endfunction()

# Libraries that one room uses are switched in that room: nothing else is
# compiled anew where they come or go.
function(sluice_remote_features folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc)
  foreach(feature CURL CRYPTO EXPAT)
    if(feature IN_LIST SLUICE_FEATURES)
      set_property(SOURCE ${sources} APPEND PROPERTY
        COMPILE_DEFINITIONS SLUICE_HAVE_${feature}=1)
    endif()
  endforeach()
endfunction()

# Programs parse command lines and print: -O3 buys nothing there, and costs half
# of their compile time.
add_library(sluice_unhurried INTERFACE)
target_compile_options(sluice_unhurried INTERFACE $<$<CONFIG:Release>:-O1>)

# The same of sluice_cli, which alone parses command lines.
function(sluice_configure_cli target)
  sluice_visibility(${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME cli)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC sluice
    PRIVATE $<BUILD_INTERFACE:sluice_warnings>
            $<BUILD_INTERFACE:sluice_unhurried> $<BUILD_INTERFACE:CLI11::CLI11>
            $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> fmt::fmt)
  target_compile_definitions(${target} PRIVATE
    SLUICE_VERSION="${PROJECT_VERSION}")
  sluice_precompile(${target})
endfunction()

# Compiles io/proto/*.proto into the build tree and adds them to the target.
# They form a library of their own, since generated code has other warnings.
function(sluice_protobuf target)
  file(GLOB protos CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/io/proto/*.proto)
  if(NOT protos)
    return()
  endif()
  add_library(sluice_proto OBJECT ${protos})
  sluice_visibility(sluice_proto)
  target_link_libraries(sluice_proto PUBLIC protobuf::libprotobuf)
  set(out ${PROJECT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  target_include_directories(sluice_proto PUBLIC ${out})
  protobuf_generate(TARGET sluice_proto LANGUAGE cpp
    IMPORT_DIRS ${PROJECT_SOURCE_DIR} PROTOC_OUT_DIR ${out})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:sluice_proto>)
  target_link_libraries(${target} PRIVATE protobuf::libprotobuf)
  add_dependencies(${target} sluice_proto)
endfunction()

# sluice_join(<target>): with SLUICE_UNITY the files of a folder are compiled as
# one, since headers are most of what there is to compile. What is local to a
# file then needs a name that no other file of its folder has. Builds without,
# those of other presets, say whether each includes what it uses.
function(sluice_join target)
  if(NOT SLUICE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
      OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    set_property(SOURCE ${source} TARGET_DIRECTORY ${target}
      PROPERTY UNITY_GROUP ${folder})
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes what a .cc includes for a header, whose types others could see.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# sluice_sources(<target> <folder> [EXCEPT <room>]) adds every .cc inside a folder
# and its rooms, but for one room, an expression, and for what sluice_isa_sources
# compiles.
function(sluice_sources target folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/simd/")
  cmake_parse_arguments(PARSE_ARGV 2 arg "" EXCEPT "")
  if(arg_EXCEPT)
    list(FILTER sources EXCLUDE REGEX "/${arg_EXCEPT}/")
  endif()
  target_sources(${target} PRIVATE ${sources})
  # Only these are worth -O3; elsewhere it costs a fifth of the compile time and
  # buys nothing.
  set(hot ${sources})
  list(FILTER hot INCLUDE REGEX "/(kernels/|dist/collective/reduce\\.cc$)")
  set_property(SOURCE ${hot} TARGET_DIRECTORY ${target}
    APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-O3>)
  # std::string::resize_and_overwrite; the file does without where it must.
  set(newer ${PROJECT_SOURCE_DIR}/io/files/grow_text.cc)
  if(newer IN_LIST sources AND cxx_std_23 IN_LIST CMAKE_CXX_COMPILE_FEATURES)
    set_property(SOURCE ${newer} TARGET_DIRECTORY ${target}
      APPEND PROPERTY COMPILE_OPTIONS ${CMAKE_CXX23_STANDARD_COMPILE_OPTION})
    set_property(SOURCE ${newer} TARGET_DIRECTORY ${target}
      PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# What reads bytes of strangers tells libFuzzer which way it went; elsewhere that
# would only make every test slower.
function(sluice_fuzzed target)
  if(NOT SLUICE_BUILD_FUZZERS)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  string(CONCAT read "/(io|dist|graph/text|graph/ops|graph/compile|models/train/workers)/.*"
    "|/graph/passes/device_description|/models/nn/metric_states")
  list(FILTER sources INCLUDE REGEX "(${read})\\.cc$")
  set_property(SOURCE ${sources} TARGET_DIRECTORY ${target}
    APPEND PROPERTY COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
  # clang takes no precompiled headers that were compiled without.
  set_property(SOURCE ${sources} TARGET_DIRECTORY ${target}
    PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# Compiles every .cc of a folder once per instruction set, each time inside the
# namespace SLUICE_ISA, so that no inline function is shared between them.
# Always optimised: the point of these files is the vector code.
function(sluice_isa_sources target folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
  if(NOT sources)
    return()
  endif()
  set(isas baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND isas avx2 avx512)
  endif()
  set(flags_baseline "")
  set(flags_avx2 -mavx2 -mfma -mf16c)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c
      -mprefer-vector-width=512)
  foreach(isa ${isas})
    add_library(sluice_${isa} OBJECT ${sources})
    sluice_visibility(sluice_${isa})
    target_compile_features(sluice_${isa} PRIVATE cxx_std_20)
    target_include_directories(sluice_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_definitions(sluice_${isa} PRIVATE SLUICE_ISA=${isa})
    target_compile_options(sluice_${isa} PRIVATE -O3 -fno-math-errno
      -fno-trapping-math -ffp-contract=fast ${flags_${isa}})
    target_link_libraries(sluice_${isa} PRIVATE sluice_warnings)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:sluice_${isa}>)
  endforeach()
endfunction()
