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
# How a file of a project configured in ${WORK}/plain is compiled.
function(command_of file out)
  file(READ ${WORK}/plain/compile_commands.json commands)
  if(NOT commands MATCHES "\"command\": \"([^\n]*)\",\n *\"file\": \"${file}\"")
    message(FATAL_ERROR "${file} is not compiled")
  endif()
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# A user's project says how it is itself compiled. The engine is optimised also
# where that says nothing, unless its flags do, and its warnings are no errors
# in somebody else's compiler.
if(HOW STREQUAL "subdirectory")
  foreach(flags "" "-O1")
    file(REMOVE_RECURSE ${WORK}/plain)
    run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/plain -G ${GENERATOR}
        ${options} -D CMAKE_BUILD_TYPE= -D CMAKE_CXX_FLAGS=${flags}
        -D CMAKE_EXPORT_COMPILE_COMMANDS=ON)
    command_of(${CMAKE_CURRENT_LIST_DIR}/consumer.cc of_user)
    command_of(${SLUICE_SOURCE}/engine/status.cc of_engine)
    command_of(${SLUICE_SOURCE}/kernels/cpu/gemm/gemm.cc of_kernel)
    if(flags STREQUAL "")
      set(unwanted "-O")
      set(engine_wanted "-O2 ")
      set(kernel_wanted "-O3 ")
    else()
      set(unwanted "-O[023]|NDEBUG")
      set(engine_wanted "-O1 ")
      set(kernel_wanted "-O1 ")
    endif()
    if(of_user MATCHES " (${unwanted})")
      message(FATAL_ERROR "the user's own flags are changed: ${of_user}")
    endif()
    if(NOT of_engine MATCHES " ${engine_wanted}")
      message(FATAL_ERROR "wanted ${engine_wanted} in: ${of_engine}")
    endif()
    if(NOT of_kernel MATCHES " ${kernel_wanted}")
      message(FATAL_ERROR "wanted ${kernel_wanted} in: ${of_kernel}")
    endif()
    if(of_engine MATCHES "-Werror")
      message(FATAL_ERROR "warnings are a user's errors: ${of_engine}")
    endif()
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
