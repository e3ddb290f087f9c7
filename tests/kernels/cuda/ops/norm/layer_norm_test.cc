// The CUDA kernels of layer normalisation, emulated, against the CPU's.
#include "kernels/cuda/ops/norm/layer_norm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
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

// y, the rows' means and one over their deviations.
std::vector<Tensor> Forward(const Tensor& x, const Tensor& scale,
                            const Tensor& offset, double epsilon,
                            size_t skip = 0) {
  const Shape& full = x.shape();
  const DType compute = scale.dtype();
  const Shape column{full[0]};
  const size_t column_bytes = static_cast<size_t>(full[0]) * SizeOf(compute);
  return InEveryOrder([&] {
    const DeviceBuffer in(x, skip), gain(scale), bias(offset);
    const DeviceBuffer y(x.bytes(), skip), mean(column_bytes),
        inv_std(column_bytes);
    LayerNormOperands o;
    o.x = in.get();
    o.scale = gain.get();
    o.offset = bias.get();
    o.y = y.get();
    o.mean = mean.get();
    o.inv_std = inv_std.get();
    CHECK(
        FindLayerNorm(x.dtype())({full[0], full[1], epsilon}, o, nullptr).ok());
    return std::vector{y.Read(x.dtype(), full), mean.Read(compute, column),
                       inv_std.Read(compute, column)};
  });
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
  CheckEqual(Forward(x, scale, offset, epsilon, c.skip), wanted, c);
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
        NormCase{.rows = 1, .width = 130},
        NormCase{.rows = 1, .width = 66'000}}) {  // more than a run a thread
    CheckForward(c);
    CheckGrad(c);
  }
}

// A mean from one sum has lost digits, which show where the distances from it
// are small.
TEST_CASE("rows keep the digits of distances from a large mean") {
  constexpr float kMean = 100.1F;
  constexpr double kUnit = 0x1p-17;  // from kMean to the next float
  for (const int64_t width : {4096, 4099}) {
    const Tensor scale = RandomTensor(DType::kFloat32, {width}, 0.5, 2);
    const Tensor offset = RandomTensor(DType::kFloat32, {width}, -1, 1, 2);
    const Tensor x = Tensor::Full(DType::kFloat32, {2, width}, kMean);
    for (const double epsilon : {1e-12, 1e-5}) {
      CAPTURE(width);
      CAPTURE(epsilon);
      const std::vector<Tensor> got = Forward(x, scale, offset, epsilon);
      for (const int64_t row : {0, 1}) {
        CHECK(std::abs(got[1].At(row) - kMean) <= kUnit);
        double farthest = 0;
        for (int64_t i = 0; i < width; ++i) {
          farthest = std::max(
              farthest, std::abs(got[0].At(row * width + i) - offset.At(i)));
        }
        CHECK(farthest < 1e-3);
      }
    }
  }

  constexpr int64_t kWidth = 65536;
  Tensor x(DType::kFloat32, {1, kWidth});
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < kWidth; ++i) {
    const double pattern = static_cast<double>(i * 37 % 101) / 101 - 0.5;
    x.data<float>()[i] = static_cast<float>(100.1 + 0.01 * pattern);
    sum += x.At(i);
  }
  const double mean = sum / kWidth;
  for (int64_t i = 0; i < kWidth; ++i) squares += std::pow(x.At(i) - mean, 2);
  const double deviation = std::sqrt(squares / kWidth + 1e-12);
  const std::vector<Tensor> got =
      Forward(x, Tensor::Full(DType::kFloat32, {kWidth}, 1),
              Tensor::Zeros(DType::kFloat32, {kWidth}), 1e-12);
  // The mean is rounded to float, which is half a unit.
  double farthest = 0;
  for (int64_t i = 0; i < kWidth; ++i) {
    farthest = std::max(farthest,
                        std::abs(got[0].At(i) - (x.At(i) - mean) / deviation));
  }
  CHECK(farthest < 0.6 * kUnit / deviation);
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
