// What kernels' element types are called in a GPU's machine code.
#ifndef SLUICE_GRAPH_COMPILE_DEVICE_TYPE_NAMES_H_
#define SLUICE_GRAPH_COMPILE_DEVICE_TYPE_NAMES_H_

#include <string_view>

#include "engine/dtype.h"

namespace sluice {

inline std::string_view DeviceTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "__half";
    case DType::kBFloat16:
      return "__nv_bfloat16";
    case DType::kFloat64:
      return "double";
    case DType::kFloat32:
      return "float";
    default:
      return NameOf(dtype);
  }
}
inline std::string_view ComputeTypeName(DType dtype) {
  return dtype == DType::kFloat64 ? "double" : "float";
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_DEVICE_TYPE_NAMES_H_
