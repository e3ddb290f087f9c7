// Sums of channels by the CUDA kernels, emulated, and batch normalisation by
// them: as by x alone, whatever the sums say.
#include "kernels/cuda/ops/norm/channel_sums.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/ops/norm/batch_norm.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

using emulation::Traffic;

// Of x, [rows, channels], in double.
struct Sums {
  std::vector<double> sum, squares;
  explicit Sums(const Tensor& x) : sum(x.shape()[1]), squares(x.shape()[1]) {
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double v = x.At(i);
      sum[i % x.shape()[1]] += v;
      squares[i % x.shape()[1]] += v * v;
    }
  }
};

Tensor VectorOf(DType dtype, const std::vector<double>& values) {
  return Tensor::Vector<double>(values).Cast(dtype);
}

TEST_CASE("sums of channels, of random shapes") {
  std::mt19937 random(5);  // NOLINT: the same in every run
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < 60; ++i) {
    const DType dtype = kFloatTypes[draw(0, 3)];
    const Shape shape = {i % 10 == 0 ? i / 20 : draw(1, 1300),
                         draw(0, 1) == 1 ? 8 * draw(1, 6) : draw(1, 70)};
    const size_t skip = draw(0, 3) == 0 ? SizeOf(dtype) : 0;
    CAPTURE(NameOf(dtype));
    CAPTURE(shape.ToString());
    const Tensor x = RandomTensor(dtype, shape, -1, 3, i + 1);
    const Sums wanted(x);
    const DType compute = ComputeDType(dtype);
    const Shape channels = {shape[1]};
    const std::vector<Tensor> got = InEveryOrder([&] {
      const DeviceBuffer in(x, skip);
      const DeviceBuffer sum(shape[1] * SizeOf(compute));
      const DeviceBuffer squares(shape[1] * SizeOf(compute));
      const DeviceBuffer workspace(
          ChannelSumsWorkspace(shape[0], shape[1], dtype));
      CHECK(FindChannelSums(dtype)(shape[0], shape[1], in.get(), sum.get(),
                                   squares.get(), workspace.get(), nullptr)
                .ok());
      return std::vector<Tensor>{sum.Read(compute, channels),
                                 squares.Read(compute, channels)};
    });
    // Of values up to 3, some units of all that is summed.
    const double rows = static_cast<double>(shape[0]);
    for (int k = 0; k < shape[1]; ++k) {
      const double unit = 32 * testing::EpsilonOf(compute) * rows;
      CHECK(std::abs(got[0].At(k) - wanted.sum[k]) <= 3 * unit);
      CHECK(std::abs(got[1].At(k) - wanted.squares[k]) <= 9 * unit);
    }
  }
}

// Batch normalisation of x by given sums or, where there are none, by x; the
// bytes of x that it reads.
struct Normalized {
  std::vector<Tensor> results;
  int64_t loaded = 0;
};
Normalized Normalize(const Tensor& x, const Tensor* sum, const Tensor* squares,
                     size_t skip) {
  const DType compute = ComputeDType(x.dtype());
  const Shape channels = {x.shape()[1]};
  const BatchNormShape shape = {x.shape()[0], x.shape()[1], 1e-3, 0.75};
  const auto vector = [&](double lo, double hi, unsigned seed) {
    return DeviceBuffer(RandomTensor(compute, channels, lo, hi, seed));
  };
  Normalized done;
  done.results = InEveryOrder([&] {
    const DeviceBuffer in(x, skip), y(x.bytes(), skip);
    const DeviceBuffer scale = vector(0.5, 1.5, 2), offset = vector(-1, 1, 3);
    const DeviceBuffer mean = vector(-1, 1, 4), variance = vector(0.5, 2, 5);
    std::vector<DeviceBuffer> out;
    for (int i = 0; i < 4; ++i) {
      out.emplace_back(shape.channels * SizeOf(compute));
    }
    const DeviceBuffer workspace(BatchNormWorkspace(shape, x.dtype()));
    BatchNormOperands o;
    o.x = in.get();
    o.y = y.get();
    o.scale = scale.get();
    o.offset = offset.get();
    o.running_mean = mean.get();
    o.running_variance = variance.get();
    o.mean = out[0].get();
    o.inv_std = out[1].get();
    o.new_mean = out[2].get();
    o.new_variance = out[3].get();
    o.workspace = workspace.get();
    std::vector<DeviceBuffer> given;
    if (sum != nullptr) {
      given.emplace_back(*sum);
      given.emplace_back(*squares);
      o.sum = given[0].get();
      o.squares = given[1].get();
    }
    const Traffic traffic(in.get(), x.bytes());
    CHECK(FindBatchNorm(x.dtype())(shape, o, nullptr).ok());
    done.loaded = traffic.loaded;
    std::vector<Tensor> results = {y.Read(x.dtype(), x.shape())};
    for (const DeviceBuffer& buffer : out) {
      results.push_back(buffer.Read(compute, channels));
    }
    return results;
  });
  return done;
}

TEST_CASE("batch normalisation by sums is that by x, read once") {
  std::mt19937 random(6);  // NOLINT: the same in every run
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < 60; ++i) {
    const DType dtype = kFloatTypes[draw(0, 3)];
    const Shape shape = {draw(8, 1300),
                         draw(0, 1) == 1 ? 8 * draw(1, 6) : draw(1, 40)};
    const size_t skip = draw(0, 3) == 0 ? SizeOf(dtype) : 0;
    // Means of up to some three deviations.
    const double around = static_cast<double>(draw(-3, 3));
    CAPTURE(NameOf(dtype));
    CAPTURE(shape.ToString());
    CAPTURE(around);
    const Tensor x = RandomTensor(dtype, shape, around - 2, around + 2, i + 1);
    const Sums sums(x);
    const Tensor sum = VectorOf(ComputeDType(dtype), sums.sum);
    const Tensor squares = VectorOf(ComputeDType(dtype), sums.squares);
    const Normalized wanted = Normalize(x, nullptr, nullptr, skip);
    const Normalized got = Normalize(x, &sum, &squares, skip);
    for (size_t k = 0; k < wanted.results.size(); ++k) {
      const bool half = testing::EpsilonOf(wanted.results[k].dtype()) > 1e-4;
      CHECK(Difference(got.results[k], wanted.results[k], half ? 1 : 400, 4)
                .empty());
    }
    // Of few rows a channel may be far off its distribution's mean.
    if (shape[0] > 100) {
      CHECK(got.loaded == static_cast<int64_t>(x.bytes()));
    }
    CHECK(wanted.loaded == 2 * static_cast<int64_t>(x.bytes()));
  }
}

TEST_CASE("where sums say too little, x is read, to the same bits") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int64_t channels : {24, 7}) {
      for (const double mean : {1000.0, 60.0}) {
        CAPTURE(NameOf(dtype));
        CAPTURE(channels);
        CAPTURE(mean);
        const Tensor x =
            RandomTensor(dtype, {1100, channels}, mean - 2, mean + 2, 9);
        const Sums sums(x);
        const Normalized wanted = Normalize(x, nullptr, nullptr, 0);
        const auto check = [&](const std::vector<double>& sum,
                               const std::vector<double>& squares) {
          const Tensor given = VectorOf(DType::kFloat32, sum);
          const Tensor of_squares = VectorOf(DType::kFloat32, squares);
          const Normalized got = Normalize(x, &given, &of_squares, 0);
          for (size_t k = 0; k < wanted.results.size(); ++k) {
            CHECK(got.results[k].BitEqual(wanted.results[k]));
          }
          CHECK(got.loaded == wanted.loaded);
        };
        check(sums.sum, sums.squares);
        // A convolution that overflowed, or that made none.
        check(std::vector<double>(channels, nan), sums.squares);
        check(sums.sum, std::vector<double>(channels, infinity));
        check(sums.sum, std::vector<double>(channels, nan));
      }
    }
  }
}

TEST_CASE("a channel that is the same everywhere has no variance") {
  for (const double value : {0.0, 5.0, 0.1}) {
    const Tensor x = Tensor::Full(DType::kFloat16, {700, 8}, value);
    const Sums sums(x);
    const Tensor sum = VectorOf(DType::kFloat32, sums.sum);
    const Tensor squares = VectorOf(DType::kFloat32, sums.squares);
    const Normalized got = Normalize(x, &sum, &squares, 0);
    for (int k = 0; k < 8; ++k) {
      CHECK(got.results[2].At(k) ==
            doctest::Approx(1 / std::sqrt(1e-3)).epsilon(1e-4));
    }
  }
}

TEST_CASE("no rows and one row") {
  for (const int64_t rows : {0, 1}) {
    const Tensor x = RandomTensor(DType::kFloat16, {rows, 8}, -2, 2);
    const Sums sums(x);
    const Tensor sum = VectorOf(DType::kFloat32, sums.sum);
    const Tensor squares = VectorOf(DType::kFloat32, sums.squares);
    const Normalized wanted = Normalize(x, nullptr, nullptr, 0);
    const Normalized got = Normalize(x, &sum, &squares, 0);
    for (size_t k = 0; k < wanted.results.size(); ++k) {
      CHECK(got.results[k].BitEqual(wanted.results[k]));
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
