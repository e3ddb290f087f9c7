# The module of all CUDA code, libsluice_cuda.so: loaded at run time, so nothing
# links to it. It needs nvcc 13, the oldest that was tried, and no GPU.
# Machine code for A100 and H100 or H200, PTX for what comes after.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
endif()
enable_language(CUDA)
# CMake 3.25 does not know how nvcc is told of C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit 13.0 REQUIRED)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cc)
# Of cuDNN, 9.8 or newer, only the headers are needed.
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT CUDNN_INCLUDE_DIR)
  message(STATUS "No cudnn_graph.h (set CUDNN_INCLUDE_DIR): convolutions on "
    "GPUs are by Sluice's own kernels alone")
  list(FILTER sources EXCLUDE REGEX "/cudnn[^/]*$")
endif()
# Of NCCL, 2.14 or newer, too.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT NCCL_INCLUDE_DIR)
  message(STATUS "No nccl.h (set NCCL_INCLUDE_DIR): no --transport nccl")
  list(FILTER sources EXCLUDE REGEX "/nccl[^/]*$")
endif()
# What kernels use of the engine is in libsluice.so, which a program has loaded
# already or, linked with the static library, loads with the module: the two meet
# in what the module's entry is handed (engine/module.h). Without it, that part
# is compiled in.
set(engine "")
if(NOT TARGET sluice_shared)
  file(GLOB engine CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/semantics/*.cc)
  foreach(part attributes caught dtype kernel note number runtime/transfer shape
      status tensor)
    list(APPEND engine ${PROJECT_SOURCE_DIR}/engine/${part}.cc)
  endforeach()
endif()
add_library(sluice_cuda MODULE ${sources} ${engine})
include(SluiceDeviceText)
sluice_device_text(sluice_cuda)
set_target_properties(sluice_cuda PROPERTIES
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON
  CUDA_RUNTIME_LIBRARY Static
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
target_include_directories(sluice_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(sluice_cuda PRIVATE SLUICE_VERSION="${PROJECT_VERSION}"
  SLUICE_CUDA_LIBRARIES=1)
if(CUDNN_INCLUDE_DIR)
  target_include_directories(sluice_cuda PRIVATE ${CUDNN_INCLUDE_DIR})
  target_compile_definitions(sluice_cuda PRIVATE SLUICE_HAVE_CUDNN=1)
endif()
if(NCCL_INCLUDE_DIR)
  target_include_directories(sluice_cuda PRIVATE ${NCCL_INCLUDE_DIR})
  target_compile_definitions(sluice_cuda PRIVATE SLUICE_HAVE_NCCL=1)
endif()
# The libraries of NVIDIA's that the module opens at run time, where they lie in
# Python's packages beside what holds the module. Elsewhere it looks for them
# itself (kernels/cuda/runtime/nvidia_library.h).
set(wheels ../nvidia ../../nvidia)
set(library_path $ORIGIN)
foreach(wheel ${wheels})
  foreach(folder cu${CUDAToolkit_VERSION_MAJOR}/lib cublas/lib cudnn/lib cuda_nvrtc/lib nccl/lib)
    list(APPEND library_path $ORIGIN/${wheel}/${folder})
  endforeach()
endforeach()
set_target_properties(sluice_cuda PROPERTIES
  INSTALL_RPATH "${library_path}" BUILD_WITH_INSTALL_RPATH ON)
target_compile_options(sluice_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror>)
# Random numbers are rounded as on the CPU, to have its bits.
set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cuda/ops/random.cu
  PROPERTIES COMPILE_OPTIONS -fmad=false)
target_link_libraries(sluice_cuda PRIVATE fmt::fmt CUDA::toolkit ${CMAKE_DL_LIBS})
if(TARGET sluice_shared)
  target_link_libraries(sluice_cuda PRIVATE sluice_shared)
endif()
install(TARGETS sluice_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT runtime)
target_link_options(sluice_cuda PRIVATE -Wl,-z,defs
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/kernels/cuda/module.map)
set_target_properties(sluice_cuda PROPERTIES
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/module.map)
