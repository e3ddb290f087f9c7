# sluice_device_text(<target>) compiles the headers that generated CUDA kernels
# include into a target, as text (kernels/cuda/fused/device_text.h). As a script it
# writes the source:
#
#   cmake -D SOURCE=<root> -D OUTPUT=<file> -P this
set(device_headers engine/semantics/scalar.h kernels/cuda/device/ahead.h
  kernels/cuda/device/block.h kernels/cuda/device/element.h
  kernels/cuda/fused/fused_arguments.h kernels/cuda/fused/fused_device.h
  kernels/cuda/device/launch.h)

if(CMAKE_SCRIPT_MODE_FILE)
  set(code "#include \"kernels/cuda/fused/device_text.h\"

namespace sluice::cuda {

std::span<const DeviceHeader> DeviceHeaders() {
  static constexpr DeviceHeader kHeaders[] = {
")
  foreach(header ${device_headers})
    file(READ ${SOURCE}/${header} text)
    string(APPEND code "{\"${header}\", R\"sluice(${text})sluice\"},\n")
  endforeach()
  file(WRITE ${OUTPUT}
    "${code}};\n  return kHeaders;\n}\n\n}  // namespace sluice::cuda\n")
  return()
endif()

set(device_text_script ${CMAKE_CURRENT_LIST_FILE})
function(sluice_device_text target)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/device_text.cc)
  list(TRANSFORM device_headers PREPEND ${PROJECT_SOURCE_DIR}/
    OUTPUT_VARIABLE inputs)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR}
      -D OUTPUT=${output} -P ${device_text_script}
    DEPENDS ${inputs} ${device_text_script}
    COMMENT "Writing the device headers as text")
  target_sources(${target} PRIVATE ${output})
endfunction()
