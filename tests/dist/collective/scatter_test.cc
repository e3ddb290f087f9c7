// What each rank gets a part of: reduce-scatter and all-to-all.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "engine/dtype.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using sluice::testing::Rounds;
using namespace testing;  // NOLINT: of the job's test double

constexpr DType kDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                             DType::kBFloat16, DType::kInt32,   DType::kInt64};

Status ReduceScatter(Group& group, Tensor& data, int64_t row, Reduction how) {
  return group.ReduceScatter("x", data.dtype(), data.raw(), data.elements(),
                             row, how);
}

// Part of every rank's bytes are `each` for every other.
std::vector<std::string> RandomBytes(size_t each, int size,
                                     std::mt19937& random) {
  std::vector<std::string> all(At(size));
  for (std::string& bytes : all) {
    bytes.resize(each * At(size));
    for (char& c : bytes) c = static_cast<char>(random());
  }
  return all;
}

std::string WantedOf(const std::vector<std::string>& sent, size_t each,
                     int rank) {
  std::string wanted;
  for (const std::string& bytes : sent) {
    wanted += bytes.substr(At(rank) * each, each);
  }
  return wanted;
}

}  // namespace

TEST_CASE("reduce-scatter gives each rank its rows, with the bits of a ring") {
  std::mt19937 random(11);
  for (int job = 0; job < 15; ++job) {
    const int size = 1 + job / 3;
    const Watchdog watchdog;
    GroupOptions options;
    options.all_reduce = Algorithm::kRing;
    Groups groups = JoinAll(size, WiresOf(At(job)), options);
    for (int run = 0; run < Rounds(24); ++run) {
      const DType dtype = kDTypes[random() % 6];
      const auto row = static_cast<int64_t>(
          run % 2 == 0 ? 1 : 1 + random() % (run % 4 == 1 ? 5 : 3000));
      const uint64_t most = run % 3 == 0 ? 8 : run % 3 == 1 ? 500 : 100'000;
      const auto rows = static_cast<int64_t>(
          random() % (most / static_cast<uint64_t>(row) + 2));
      const Reduction how = IsFloating(dtype) && random() % 2 == 0
                                ? Reduction::kMean
                                : Reduction::kSum;
      const auto inputs = RandomTensors(dtype, rows * row, size, random);
      std::vector<Tensor> parts, wholes;
      for (const Tensor& input : inputs) {
        parts.push_back(input.Clone());
        wholes.push_back(input.Clone());
      }
      CAPTURE(size);
      CAPTURE(NameOf(dtype));
      CAPTURE(rows);
      CAPTURE(row);
      CheckOk(OnAll(groups, [&](Group& group) -> Status {
        const size_t i = At(group.rank());
        SLUICE_RETURN_IF_ERROR(ReduceScatter(group, parts[i], row, how));
        return group.AllReduce("x", &wholes[i], how);
      }));
      for (int rank = 0; rank < size; ++rank) {
        const Range own = Part(rows, size, rank);
        const int64_t begin = own.begin * row;
        const int64_t end = begin + own.count * row;
        const Tensor got = parts[At(rank)].Rows(begin, end);
        CHECK(Wrong(got, inputs, how, begin) == 0);
        if (row == 1) CHECK(got.BitEqual(wholes[0].Rows(begin, end)));
      }
    }
  }
}

TEST_CASE("all-to-all gives each rank what all have for it") {
  std::mt19937 random(12);
  for (int job = 0; job < 18; ++job) {
    const int size = 1 + job / 3;
    const Watchdog watchdog;
    Groups groups = JoinAll(size, WiresOf(At(job)));
    for (int run = 0; run < Rounds(12); ++run) {
      const size_t each = random() % (run % 3 == 0   ? 4
                                      : run % 3 == 1 ? 3000
                                                     : 600'000);
      const auto sent = RandomBytes(each, size, random);
      const bool in_place = random() % 2 == 0;
      std::vector<std::string> got(At(size),
                                   std::string(each * At(size), '\0'));
      if (in_place) got = sent;
      CheckOk(OnAll(groups, [&](Group& group) {
        const size_t i = At(group.rank());
        return group.AllToAll("t", in_place ? got[i].data() : sent[i].data(),
                              static_cast<int64_t>(each), got[i].data());
      }));
      for (int rank = 0; rank < size; ++rank) {
        CHECK((got[At(rank)] == WantedOf(sent, each, rank)));
      }
    }
  }
}

// n - 1 of n chunks, and n (n - 1) / 2 blocks; and a header, or where there is
// nothing else as many as it takes to know that all have come.
TEST_CASE("reduce-scatter and all-to-all send what is said of them") {
  for (int size = 1; size <= 5; ++size) {
    for (const int64_t count : {0, 60, 60'000}) {
      CAPTURE(size);
      CAPTURE(count);
      const Watchdog watchdog;
      Groups groups = JoinAll(size, WiresOf(At(size)));
      const int64_t headers = 48 * (size == 1 ? 0 : count == 0 ? size - 1 : 1);
      std::vector<std::vector<float>> data(
          At(size), std::vector<float>(static_cast<size_t>(count), 1.F));
      std::vector<std::vector<float>> other = data;
      CheckOk(OnAll(groups, [&](Group& group) {
        return group.ReduceScatter("x", DType::kFloat32,
                                   data[At(group.rank())].data(), count, 1,
                                   Reduction::kSum);
      }));
      for (const auto& group : groups) {
        CHECK(group->bytes_sent() == (size - 1) * count * 4 / size + headers);
      }
      const int64_t each = count * 4 / size;
      CheckOk(OnAll(groups, [&](Group& group) {
        const int64_t before = group.bytes_sent();
        const size_t i = At(group.rank());
        Status status =
            group.AllToAll("t", data[i].data(), each, other[i].data());
        CHECK(group.bytes_sent() - before ==
              size * (size - 1) / 2 * each + headers);
        return status;
      }));
    }
  }
}

TEST_CASE("reduce-scatter and all-to-all: arguments that make no sense") {
  float data[8] = {}, other[8] = {};
  constexpr int64_t kHuge = int64_t{1} << 62;
  const auto scatter = [&](DType dtype, int64_t count, int64_t row,
                           Reduction how) {
    return Group::Alone()->ReduceScatter("x", dtype, data, count, row, how);
  };
  const auto trade = [&](int64_t each, void* to) {
    return Group::Alone()->AllToAll("x", data, each, to);
  };
  const DType f32 = DType::kFloat32;
  CHECK(scatter(f32, 6, 2, Reduction::kSum).ok());
  CHECK(trade(8, other).ok());
  CHECK(trade(0, data).ok());
  CHECK(trade(8, data).ok());  // in place
  for (const Status& status :
       {scatter(DType::kBool, 6, 2, Reduction::kSum),
        scatter(DType::kInt32, 6, 2, Reduction::kMean),
        scatter(f32, 6, 4, Reduction::kSum),
        scatter(f32, 6, 0, Reduction::kSum),
        scatter(f32, -6, 2, Reduction::kSum),
        scatter(f32, kHuge, 2, Reduction::kSum), trade(-1, other),
        trade(kHuge, other), trade(8, data + 1)}) {
    CAPTURE(status.ToString());
    CHECK(status.code() == Code::kInvalidArgument);
  }
}

}  // namespace sluice::dist
