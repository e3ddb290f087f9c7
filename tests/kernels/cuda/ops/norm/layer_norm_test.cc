// The CUDA kernels of layer normalisation, emulated, against the CPU's.
#include "kernels/cuda/ops/norm/layer_norm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

struct NormCase {
  DType dtype = DType::kFloat32;
  int64_t rows = 5, width = 32;
  size_t skip = 0;
};

// In units of the dtype: sums of up to some thousand terms of about 1 in
// another order, which may cancel.
void CheckEqual(const std::vector<Tensor>& got,
                const std::vector<Tensor>& wanted, const NormCase& c) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double scale = std::max(1.0, static_cast<double>(c.rows) / 32);
    const std::string difference = Difference(got[i], wanted[i], 64, scale);
    CHECK_MESSAGE(difference.empty(), "[", c.rows, ",", c.width, "], result ",
                  i, ": ", difference);
  }
}

void CheckForward(const NormCase& c) {
  const DType compute = ComputeDType(c.dtype);
  const Shape full{c.rows, c.width}, row{c.width}, column{c.rows};
  const Tensor x = RandomTensor(c.dtype, full, -1, 5);
  const Tensor scale = RandomTensor(compute, row, 0.5, 2, 2);
  const Tensor offset = RandomTensor(compute, row, -1, 1, 3);
  const double epsilon = 1e-3;
  const std::vector<Tensor> wanted =
      CpuResults("LayerNorm", {{"epsilon", epsilon}}, {x, scale, offset},
                 {{c.dtype, full}, {compute, column}, {compute, column}});
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer in(x, c.skip), gain(scale), bias(offset);
    const DeviceBuffer y(x.bytes(), c.skip), mean(wanted[1].bytes()),
        inv_std(wanted[2].bytes());
    LayerNormOperands o;
    o.x = in.get();
    o.scale = gain.get();
    o.offset = bias.get();
    o.y = y.get();
    o.mean = mean.get();
    o.inv_std = inv_std.get();
    CHECK(FindLayerNorm(c.dtype)({c.rows, c.width, epsilon}, o, nullptr).ok());
    return std::vector{y.Read(c.dtype, full), mean.Read(compute, column),
                       inv_std.Read(compute, column)};
  });
  CheckEqual(got, wanted, c);
}

void CheckGrad(const NormCase& c) {
  const DType compute = ComputeDType(c.dtype);
  const Shape full{c.rows, c.width}, row{c.width}, column{c.rows};
  const Tensor x = RandomTensor(c.dtype, full, -1, 5);
  const Tensor dy = RandomTensor(c.dtype, full, -1, 1, 5);
  const Tensor scale = RandomTensor(compute, row, 0.5, 2, 2);
  const Tensor mean = RandomTensor(compute, column, 1, 3, 3);
  const Tensor inv_std = RandomTensor(compute, column, 0.5, 1, 4);
  const std::vector<Tensor> wanted =
      CpuResults("LayerNormGrad", {}, {x, scale, mean, inv_std, dy},
                 {{c.dtype, full}, {compute, row}, {compute, row}});
  const LayerNormShape shape = {c.rows, c.width};
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer in(x, c.skip), gain(scale), means(mean),
        inv_stds(inv_std), grad(dy, c.skip);
    const DeviceBuffer dx(x.bytes(), c.skip), dscale(scale.bytes()),
        doffset(scale.bytes());
    const DeviceBuffer workspace(LayerNormGradWorkspace(shape, c.dtype));
    LayerNormGradOperands o;
    o.x = in.get();
    o.scale = gain.get();
    o.mean = means.get();
    o.inv_std = inv_stds.get();
    o.dy = grad.get();
    o.dx = dx.get();
    o.dscale = dscale.get();
    o.doffset = doffset.get();
    o.workspace = workspace.get();
    CHECK(FindLayerNormGrad(c.dtype)(shape, o, nullptr).ok());
    return std::vector{dx.Read(c.dtype, full), dscale.Read(compute, row),
                       doffset.Read(compute, row)};
  });
  CheckEqual(got, wanted, c);
}

TEST_CASE("layer normalisation and its gradients") {
  for (DType dtype : kFloatTypes) {
    for (const NormCase& c :
         {NormCase{dtype, 5, 32}, NormCase{dtype, 3, 77},
          NormCase{dtype, 4, 264}, NormCase{dtype, 6, 40, SizeOf(dtype)}}) {
      CheckForward(c);
      CheckGrad(c);
    }
  }
  for (const NormCase& c :
       {NormCase{.rows = 2, .width = 1500}, NormCase{.rows = 3, .width = 1},
        NormCase{.rows = 1, .width = 130}}) {
    CheckForward(c);
    CheckGrad(c);
  }
}

TEST_CASE("gradients over several segments of rows") {
  CheckGrad({.rows = 1100, .width = 3});
  CheckGrad({.rows = 600, .width = 36});
}

TEST_CASE("no rows") {
  const DeviceBuffer dscale(16), doffset(16);
  LayerNormGradOperands o;
  o.dscale = dscale.get();
  o.doffset = doffset.get();
  CHECK(FindLayerNormGrad(DType::kFloat32)({0, 4}, o, nullptr).ok());
  for (int i = 0; i < 4; ++i) {
    CHECK(dscale.Read(DType::kFloat32, {4}).At(i) == 0);
    CHECK(doffset.Read(DType::kFloat32, {4}).At(i) == 0);
  }
}

}  // namespace
}  // namespace sluice::cuda
