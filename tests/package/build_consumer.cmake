# Configures, builds and runs one consumer project (see CMakeLists.txt here).
# HOW=find and HOW=shared install the build tree first, to a prefix of their own.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(options -D CMAKE_CXX_COMPILER=${COMPILER}
            -D SLUICE_TESTS=${SLUICE_SOURCE}/tests)
if(NOT HOW STREQUAL "subdirectory")
  # A fresh prefix and build, or files of an earlier install would be found.
  file(REMOVE_RECURSE ${WORK})
  run(${CMAKE_COMMAND} --install ${SLUICE_BUILD} --prefix ${WORK}/prefix)
  list(APPEND options -D CMAKE_PREFIX_PATH=${WORK}/prefix
                      -D CMAKE_BUILD_TYPE=${BUILD_TYPE})
else()
  # Unoptimised, since only compiling and linking are in question.
  list(APPEND options -D SLUICE_SOURCE=${SLUICE_SOURCE}
                      -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O0)
endif()

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR}
    ${options})

if(NOT HOW STREQUAL "subdirectory" OR NOT GENERATOR MATCHES "Ninja")
  run(${CMAKE_COMMAND} --build ${WORK}/build)
else()
  # The library takes minutes to compile and is compiled already, so one file
  # of each kind of it stands for the rest: flags, include paths, generated
  # headers. The consumers are compiled, and linked by the very commands that
  # their build would use, with the library that is there.
  run(${CMAKE_COMMAND} --build ${WORK}/build --target
      ${CMAKE_CURRENT_LIST_DIR}/consumer.cc^
      ${CMAKE_CURRENT_LIST_DIR}/cluster.cc^
      ${SLUICE_SOURCE}/tests/apps/readme_mnist.cc^
      ${SLUICE_SOURCE}/engine/status.cc^
      ${SLUICE_SOURCE}/io/summaries/event_proto.cc^
      ${SLUICE_SOURCE}/models/cli/console.cc^)
  foreach(library libsluice.a libsluice_cli.a)
    file(COPY_FILE ${SLUICE_BUILD}/${library} ${WORK}/build/sluice/${library})
  endforeach()
  find_program(ninja NAMES ninja ninja-build REQUIRED)
  foreach(program consumer cluster program)
    execute_process(COMMAND ${ninja} -C ${WORK}/build -t commands -s ${program}
      OUTPUT_VARIABLE link COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX REPLACE "^ninja: Entering[^\n]*\n" "" link "${link}")
    execute_process(COMMAND sh -c "${link}" WORKING_DIRECTORY ${WORK}/build
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endif()
run(${WORK}/build/consumer)
run(${WORK}/build/cluster)
run(${WORK}/build/program --version)

# The installed programs find the shared libraries that were installed beside
# them, wherever the prefix goes.
if(HOW STREQUAL "shared")
  file(RENAME ${WORK}/prefix ${WORK}/moved)
  run(${WORK}/moved/bin/mnist train --model softmax --steps 2
      --log-dir ${WORK}/log --json)
  run(${WORK}/moved/bin/sluice ops)
endif()
