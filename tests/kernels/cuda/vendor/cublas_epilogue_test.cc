// What cuBLASLt is asked for, which needs neither it nor a GPU.
#include "kernels/cuda/vendor/cublas_epilogue.h"

#include <doctest/doctest.h>

namespace sluice::cuda {
namespace {

TEST_CASE("cuBLASLt adds a bias, and is never asked for a ReLU") {
  for (const bool relu : {false, true}) {
    CAPTURE(relu);
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                              DType::kBFloat16}) {
      CAPTURE(NameOf(dtype));
      KernelSpec spec;
      spec.attrs = {{"transpose_a", false}, {"transpose_b", false}};
      if (relu) spec.attrs.Set("relu", true);
      const TensorType matrix = {dtype, {4, 4}}, vector = {dtype, {4}};
      const auto check = [&](cublasLtEpilogue_t wanted) {
        const cublasLtEpilogue_t epilogue = LtEpilogueOf(spec);
        CHECK((epilogue & CUBLASLT_EPILOGUE_RELU) == 0);
        CHECK(epilogue == wanted);
      };
      spec.inputs = {matrix, matrix};
      check(CUBLASLT_EPILOGUE_DEFAULT);
      spec.inputs = {matrix, matrix, vector};
      check(CUBLASLT_EPILOGUE_BIAS);
      spec.inputs = {matrix, matrix, matrix};
      check(CUBLASLT_EPILOGUE_DEFAULT);
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
