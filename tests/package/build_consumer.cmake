# Configures, builds and runs one consumer project (see CMakeLists.txt here).
# HOW=find installs the build tree first, to a prefix of its own.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(options -D CMAKE_CXX_COMPILER=${COMPILER}
            -D SLUICE_TESTS=${SLUICE_SOURCE}/tests)
if(HOW STREQUAL "find")
  # A fresh prefix and build, or files of an earlier install would be found.
  file(REMOVE_RECURSE ${WORK})
  run(${CMAKE_COMMAND} --install ${SLUICE_BUILD} --prefix ${WORK}/prefix)
  list(APPEND options -D CMAKE_PREFIX_PATH=${WORK}/prefix
                      -D CMAKE_BUILD_TYPE=${BUILD_TYPE})
else()
  # Unoptimised, since only compiling and linking are in question; the build is
  # kept, so that the next run compiles only what changed.
  list(APPEND options -D SLUICE_SOURCE=${SLUICE_SOURCE}
                      -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O0)
endif()

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR}
    ${options})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
run(${WORK}/build/program --version)
