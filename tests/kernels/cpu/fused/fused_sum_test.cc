// Sums of fused programs where there is nothing to sum; op_table_test has the
// others.
#include <doctest/doctest.h>

#include "tests/support/kernel_run.h"

namespace sluice {
namespace {

TEST_CASE(
    "sums over no elements are zeros, whichever dimensions they are over") {
  struct Case {
    const char* sum;
    Shape shape, result;
  };
  for (const Case& c :
       {Case{"trailing", {3, 0}, {3}}, {"leading", {0, 3}, {3}}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      KernelSpec spec;
      spec.op = "FusedSum";
      spec.node = "sum";
      spec.inputs = {{dtype, c.shape}};
      spec.outputs = {{dtype, c.shape}, {dtype, c.result}};
      spec.attrs.Set("program", std::string("Square(0)"));
      spec.attrs.Set("outputs", std::vector<int64_t>{1, 1});
      spec.attrs.Set("shape", c.shape);
      spec.attrs.Set("sum", std::string(c.sum));
      spec.attrs.Set("sum_shape", c.result);
      spec.attrs.Set("sum_scale", 0.5);
      const std::vector<Tensor> inputs = {Tensor(dtype, c.shape)};
      for (const KernelDef* def :
           KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
        CAPTURE(c.sum);
        CAPTURE(def->provider);
        const Tensor sums = testing::RunKernel(*def, spec, inputs)[1];
        for (int64_t i = 0; i < 3; ++i) CHECK(sums.At(i) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
