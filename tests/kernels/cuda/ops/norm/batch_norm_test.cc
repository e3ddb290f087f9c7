// The CUDA kernels of batch normalisation, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cuda/ops/norm/batch_norm.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

constexpr double kEpsilon = 1e-3, kMomentum = 0.75;

// What one case computes: an op's name says which operands it has.
struct Case {
  std::string op;
  DType dtype = DType::kFloat32;
  int64_t rows = 70, channels = 24;
  size_t skip = 0;
  double mean = 0.5;       // of x
  bool two_terms = false;  // of a gradient
  bool in_place = false;   // y is x, or dx dy

  bool relu() const { return op.find("Relu") != std::string::npos; }
  bool add() const { return op.find("Add") != std::string::npos; }
  DType compute() const { return ComputeDType(dtype); }
  BatchNormShape shape() const { return {rows, channels, kEpsilon, kMomentum}; }
  Shape full() const { return {rows, channels}; }
  Attributes attrs() const {
    Attributes attrs;
    attrs.Set("epsilon", kEpsilon);
    attrs.Set("momentum", kMomentum);
    return attrs;
  }
  TensorType image() const { return {dtype, full()}; }
  TensorType vector() const { return {compute(), {channels}}; }
  TensorType mask() const {
    return {DType::kUInt8, {(rows * channels + 7) / 8}};
  }
  Tensor Image(unsigned seed, double around = 0) const {
    return RandomTensor(dtype, full(), around - 2, around + 2, seed);
  }
  Tensor Vector(unsigned seed, double lo, double hi) const {
    return RandomTensor(compute(), {channels}, lo, hi, seed);
  }
};

// Sums of float over the rows in another order: some units of what is summed.
// Half results are rounded once, from sums in float.
void CheckResults(const Case& c, const std::vector<Tensor>& got,
                  const std::vector<Tensor>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool half = testing::EpsilonOf(got[i].dtype()) > 1e-4;
    const double sums = 4 + static_cast<double>(c.rows) / 4;
    const bool columns = got[i].shape().rank() == 1;
    // A float mean is known to a unit of its own size.
    const double units = half ? 1 : columns ? sums : 64;
    const std::string difference =
        Difference(got[i], wanted[i], units, half ? 1 : 1 + c.mean);
    CHECK_MESSAGE(difference.empty(), c.op, " [", c.rows, ",", c.channels,
                  "] output ", i, ", ", difference);
  }
}

void CheckForward(const Case& c) {
  const bool inverse = c.op.starts_with("BatchNormApply");
  const bool inference = inverse || c.op == "BatchNormInference";
  std::vector<Tensor> in = {c.Image(1, c.mean), c.Vector(2, 0.5, 1.5),
                            c.Vector(3, -1, 1), c.Vector(4, -1, 1),
                            c.Vector(5, 0.5, 2)};
  if (c.add()) in.push_back(c.Image(6));
  std::vector<TensorType> out = {c.image()};
  if (!inference) out.insert(out.end(), 4, c.vector());
  if (c.relu()) out.push_back(c.mask());
  const std::vector<Tensor> wanted = CpuResults(c.op, c.attrs(), in, out);
  const std::vector<Tensor> got = InEveryOrder([&] {
    std::vector<DeviceBuffer> from, to;
    for (size_t i = 0; i < in.size(); ++i) {
      from.emplace_back(in[i], i == 0 || i == 5 ? c.skip : 0);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      to.emplace_back(out[i].bytes(), i == 0 ? c.skip : 0);
    }
    if (c.in_place) to[0] = from[0];
    const DeviceBuffer workspace(BatchNormWorkspace(c.shape(), c.dtype));
    BatchNormOperands o;
    o.x = from[0].get();
    o.scale = from[1].get();
    o.offset = from[2].get();
    o.running_mean = from[3].get();
    (inverse ? o.given_inv_std : o.running_variance) = from[4].get();
    if (c.add()) o.addend = from[5].get();
    o.y = to[0].get();
    if (!inference) {
      o.mean = to[1].get();
      o.inv_std = to[2].get();
      o.new_mean = to[3].get();
      o.new_variance = to[4].get();
    }
    if (c.relu()) o.mask = to.back().as<uint8_t>();
    o.workspace = workspace.get();
    const BatchNormLauncher launch =
        inference ? FindBatchNormInference(c.dtype) : FindBatchNorm(c.dtype);
    CHECK(launch(c.shape(), o, nullptr).ok());
    std::vector<Tensor> results;
    for (size_t i = 0; i < out.size(); ++i) {
      results.push_back(to[i].Read(out[i].dtype, out[i].shape));
    }
    return results;
  });
  CheckResults(c, got, wanted);
}

void CheckGrad(const Case& c) {
  std::vector<Tensor> in = {c.Image(1, c.mean), c.Vector(2, 0.5, 1.5),
                            c.Vector(3, c.mean - 0.2, c.mean + 0.2),
                            c.Vector(4, 0.5, 1.5)};
  if (c.relu()) {
    in.push_back(RandomTensor(DType::kFloat32, c.mask().shape, 0, 255, 5)
                     .Cast(DType::kUInt8));
  }
  const size_t dy = in.size();
  in.push_back(c.Image(6));
  if (c.two_terms) in.push_back(c.Image(7));
  std::vector<TensorType> out = {c.image(), c.vector(), c.vector()};
  if (c.add()) out.push_back(c.image());
  const std::vector<Tensor> wanted = CpuResults(c.op, c.attrs(), in, out);
  const std::vector<Tensor> got = InEveryOrder([&] {
    std::vector<DeviceBuffer> from, to;
    for (size_t i = 0; i < in.size(); ++i) {
      from.emplace_back(in[i], i == 0 || i >= dy ? c.skip : 0);
    }
    for (const TensorType& type : out) {
      to.emplace_back(type.bytes(), type == c.image() ? c.skip : 0);
    }
    if (c.in_place) to[0] = from[dy];
    const DeviceBuffer workspace(BatchNormWorkspace(c.shape(), c.dtype));
    BatchNormGradOperands o;
    o.x = from[0].get();
    o.scale = from[1].get();
    o.mean = from[2].get();
    o.inv_std = from[3].get();
    if (c.relu()) o.mask = from[4].as<uint8_t>();
    o.dy = from[dy].get();
    if (c.two_terms) o.dy2 = from[dy + 1].get();
    o.dx = to[0].get();
    o.dscale = to[1].get();
    o.doffset = to[2].get();
    if (c.add()) o.g = to[3].get();
    o.workspace = workspace.get();
    CHECK(FindBatchNormGrad(c.dtype)(c.shape(), o, nullptr).ok());
    std::vector<Tensor> results;
    for (size_t i = 0; i < out.size(); ++i) {
      results.push_back(to[i].Read(out[i].dtype, out[i].shape));
    }
    return results;
  });
  CheckResults(c, got, wanted);
}

constexpr const char* kForward[] = {"BatchNorm",
                                    "BatchNormRelu",
                                    "BatchNormAddRelu",
                                    "BatchNormInference",
                                    "BatchNormApply",
                                    "BatchNormApplyRelu",
                                    "BatchNormApplyAddRelu"};
constexpr const char* kGrads[] = {"BatchNormGrad", "BatchNormReluGrad",
                                  "BatchNormAddReluGrad"};

TEST_CASE("forward, in every dtype: whole packs of channels and odd ones") {
  for (const char* op : kForward) {
    for (DType dtype : kFloatTypes) {
      CheckForward({.op = op, .dtype = dtype});
      CheckForward({.op = op, .dtype = dtype, .rows = 33, .channels = 7});
    }
    CheckForward({.op = op, .skip = 4});
    CheckForward({.op = op, .rows = 40, .channels = 72, .in_place = true});
    CheckForward({.op = op, .rows = 1, .channels = 3});
  }
}

TEST_CASE("rows in several segments") {
  for (const char* op : {"BatchNorm", "BatchNormAddRelu"}) {
    CheckForward({.op = op, .rows = 513, .channels = 8});
    CheckForward({.op = op, .rows = 1700, .channels = 5});
    CheckForward(
        {.op = op, .dtype = DType::kFloat16, .rows = 1100, .channels = 16});
  }
  // So many that segments grow, rather than become more.
  CheckForward({.op = "BatchNorm", .rows = 530'000, .channels = 1});
  CheckGrad({.op = "BatchNormGrad", .rows = 1700, .channels = 5});
  CheckGrad({.op = "BatchNormAddReluGrad", .rows = 1030, .channels = 8});
}

TEST_CASE("a large mean costs no digits") {
  // The variance of numbers around 1000 by sums of squares would lose six.
  CheckForward({.op = "BatchNorm",
                .dtype = DType::kFloat64,
                .rows = 600,
                .channels = 4,
                .mean = 1000});
  const Case c = {.op = "BatchNorm", .rows = 600, .channels = 4, .mean = 1000};
  const Tensor x = c.Image(1, c.mean);
  const Tensor ones = Tensor::Full(DType::kFloat32, {4}, 1);
  const DeviceBuffer in(x), one(ones), y(x.bytes());
  const DeviceBuffer mean(16), inv_std(16), new_mean(16), new_variance(16);
  const DeviceBuffer workspace(BatchNormWorkspace(c.shape(), c.dtype));
  BatchNormOperands o;
  o.x = in.get();
  o.scale = o.offset = o.running_mean = o.running_variance = one.get();
  o.mean = mean.get();
  o.inv_std = inv_std.get();
  o.new_mean = new_mean.get();
  o.new_variance = new_variance.get();
  o.y = y.get();
  o.workspace = workspace.get();
  CHECK(FindBatchNorm(c.dtype)(c.shape(), o, nullptr).ok());
  const Tensor moved = new_variance.Read(DType::kFloat32, {4});
  for (int k = 0; k < 4; ++k) {
    double sum = 0, squares = 0;
    for (int r = 0; r < 600; ++r) sum += x.At(r * 4 + k);
    for (int r = 0; r < 600; ++r) {
      const double d = x.At(r * 4 + k) - sum / 600;
      squares += d * d;
    }
    const double wanted = kMomentum + (1 - kMomentum) * squares / 599;
    CHECK(std::abs(moved.At(k) - wanted) < 1e-4);
  }
}

TEST_CASE("backward, of one gradient and of the sum of two, in every dtype") {
  for (const char* op : kGrads) {
    for (DType dtype : kFloatTypes) {
      CheckGrad({.op = op, .dtype = dtype});
      CheckGrad({.op = op, .dtype = dtype, .rows = 33, .channels = 7});
    }
    CheckGrad({.op = op, .skip = 4});
    CheckGrad({.op = op, .rows = 40, .channels = 72, .in_place = true});
    if (std::string(op) == "BatchNormGrad") continue;
    for (DType dtype : kFloatTypes) {
      CheckGrad({.op = op, .dtype = dtype, .two_terms = true});
    }
    CheckGrad({.op = op,
               .rows = 37,
               .channels = 9,
               .two_terms = true,
               .in_place = true});
  }
}

}  // namespace
}  // namespace sluice::cuda
