// What each rank gets a part of: reduce-scatter and all-to-all, and programs of
// all collectives, one after another and one of them wrong.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "engine/dtype.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"

namespace sluice::dist {
namespace {

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

TEST_CASE("reduce-scatter gives each rank its rows, with all-reduce's bits") {
  std::mt19937 random(11);
  for (int job = 0; job < 15; ++job) {
    const int size = 1 + job / 3;
    const Watchdog watchdog;
    Groups groups = JoinAll(size, WiresOf(At(job)));
    for (int run = 0; run < 24; ++run) {
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
    for (int run = 0; run < 12; ++run) {
      const size_t each = random() % (run % 3 == 0   ? 4
                                      : run % 3 == 1 ? 3000
                                                     : 600'000);
      const auto sent = RandomBytes(each, size, random);
      std::vector<std::string> got(At(size),
                                   std::string(each * At(size), '\0'));
      CheckOk(OnAll(groups, [&](Group& group) {
        const size_t i = At(group.rank());
        return group.AllToAll("t", sent[i].data(), static_cast<int64_t>(each),
                              got[i].data());
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
  for (const Status& status :
       {scatter(DType::kBool, 6, 2, Reduction::kSum),
        scatter(DType::kInt32, 6, 2, Reduction::kMean),
        scatter(f32, 6, 4, Reduction::kSum),
        scatter(f32, 6, 0, Reduction::kSum),
        scatter(f32, -6, 2, Reduction::kSum),
        scatter(f32, kHuge, 2, Reduction::kSum), trade(-1, other),
        trade(kHuge, other), trade(8, data), trade(8, data + 1)}) {
    CAPTURE(status.ToString());
    CHECK(status.code() == Code::kInvalidArgument);
  }
}

namespace {

// A collective of a program, which every rank can do and check by itself.
struct Act {
  enum Kind { kReduce, kScatter, kTrade, kGather, kSpread, kWait } kind;
  std::string name;
  DType dtype;
  int64_t count;  // of a rank's elements, or bytes for each
};

Act RandomAct(std::mt19937& random) {
  Act act;
  act.kind = static_cast<Act::Kind>(random() % 6);
  act.name = std::string(1, static_cast<char>('a' + random() % 3));
  act.dtype = random() % 2 == 0 ? DType::kInt32 : DType::kInt64;
  act.count = static_cast<int64_t>(random() % (random() % 3 == 0 ? 90'000 : 9));
  return act;
}

// Element i of a rank: integers, whose sums are exact.
int64_t Given(int rank, int64_t i) {
  return (i * 31 + rank * 7) % 100;
}

Status Reduced(const Act& act, Group& group) {
  Tensor data(DType::kInt64, {act.count});
  for (int64_t i = 0; i < act.count; ++i) {
    data.data<int64_t>()[i] = Given(group.rank(), i);
  }
  Tensor sum = data.Cast(act.dtype);
  Range own{0, act.count};
  if (act.kind == Act::kReduce) {
    SLUICE_RETURN_IF_ERROR(group.AllReduce(act.name, &sum, Reduction::kSum));
  } else {
    own = Part(act.count, group.size(), group.rank());
    SLUICE_RETURN_IF_ERROR(group.ReduceScatter(act.name, act.dtype, sum.raw(),
                                               act.count, 1, Reduction::kSum));
  }
  for (int64_t i = own.begin; i < own.begin + own.count; ++i) {
    double wanted = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      wanted += static_cast<double>(Given(rank, i));
    }
    if (sum.At(i) != wanted) return Internal("a wrong sum");
  }
  return {};
}

Status Moved(const Act& act, Group& group) {
  const auto each = static_cast<size_t>(act.count);
  const size_t n = At(group.size());
  // To one of all: who sends it, and whom it is for.
  const auto bytes = [&](size_t from, size_t to) {
    return std::string(each, static_cast<char>('A' + from * 6 + to));
  };
  const size_t mine = At(group.rank());
  std::string out, in(each * n, '\0'), wanted;
  for (size_t i = 0; i < n; ++i) {
    out += bytes(mine, i);
    wanted += act.kind == Act::kTrade ? bytes(i, mine) : bytes(i, 0);
  }
  if (act.kind == Act::kSpread) {
    in = out;
    wanted.clear();
    for (size_t i = 0; i < n; ++i) wanted += bytes(n - 1, i);
    SLUICE_RETURN_IF_ERROR(group.Broadcast(act.name, in.data(),
                                           static_cast<int64_t>(in.size()),
                                           group.size() - 1));
  } else {
    SLUICE_RETURN_IF_ERROR(
        act.kind == Act::kTrade
            ? group.AllToAll(act.name, out.data(), act.count, in.data())
            : group.AllGather(act.name, out.data(), act.count, in.data()));
  }
  return in == wanted ? Status() : Internal("wrong bytes");
}

Status Do(const Act& act, Group& group) {
  if (act.kind == Act::kWait) return group.Barrier(act.name);
  return act.kind <= Act::kScatter ? Reduced(act, group) : Moved(act, group);
}

// Another act in this one's place.
Act Changed(Act act, std::mt19937& random) {
  const Act before = act;
  switch (random() % 4) {
    case 0:
      act.name += 'x';
      break;
    case 1:
      act.count += 1 + static_cast<int64_t>(random() % 90'000);
      break;
    case 2:
      act.dtype = act.dtype == DType::kInt32 ? DType::kInt64 : DType::kInt32;
      break;
    default:
      act.kind = static_cast<Act::Kind>((act.kind + 1 + random() % 5) % 6);
  }
  // Where that says nothing: a barrier has no count, bytes have no dtype.
  const bool sums = before.kind <= Act::kScatter;
  if (act.kind == before.kind && act.name == before.name &&
      (before.kind == Act::kWait || (!sums && act.count == before.count))) {
    act.name += 'x';
  }
  return act;
}

}  // namespace

TEST_CASE("programs of all collectives, each begun as soon as it can be") {
  std::mt19937 random(13);
  for (int job = 0; job < 40; ++job) {
    const int size = 1 + job % 5;
    const Watchdog watchdog;
    std::vector<Act> program;
    for (int i = 0; i < 20; ++i) program.push_back(RandomAct(random));
    Groups groups = JoinAll(size, WiresOf(At(job) / 5));
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      for (const Act& act : program) {
        SLUICE_RETURN_IF_ERROR(Do(act, group));
      }
      return {};
    }));
  }
}

TEST_CASE("a changed, missing or swapped collective is everyone's error") {
  std::mt19937 random(14);
  for (int job = 0; job < 150; ++job) {
    const int size = 2 + job % 4;
    const Watchdog watchdog;
    std::vector<Act> program;
    // Each has a name of its own, so that two are never the same.
    for (int i = 0; i < 6; ++i) {
      program.push_back(RandomAct(random));
      program.back().name += std::to_string(i);
    }
    program.push_back({Act::kWait, "end", DType::kInt32, 0});
    std::vector<Act> other = program;
    const auto at = static_cast<std::ptrdiff_t>(random() % 6);
    switch (job / 4 % 3) {
      case 0:
        other[static_cast<size_t>(at)] =
            Changed(other[static_cast<size_t>(at)], random);
        break;
      case 1:
        other.erase(other.begin() + at);
        break;
      default:
        std::swap(other[static_cast<size_t>(at)],
                  other[static_cast<size_t>(at) + 1]);
    }
    const int odd = static_cast<int>(random() % At(size));
    CAPTURE(size);
    CAPTURE(odd);
    CAPTURE(job);
    Groups groups = JoinAll(size, WiresOf(random()));
    CheckMismatch(groups, [&](Group& group) -> Status {
      for (const Act& act : group.rank() == odd ? other : program) {
        SLUICE_RETURN_IF_ERROR(Do(act, group));
      }
      return {};
    });
  }
}

}  // namespace sluice::dist
