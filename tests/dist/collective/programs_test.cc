// Programs of all collectives, one after another and several under way, and one
// of them wrong.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "engine/dtype.h"
#include "tests/dist/collective/acts.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double

constexpr Overlap kOverlaps[] = {Overlap::kAuto, Overlap::kOn, Overlap::kOff};

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
    const uint32_t seed = random();
    GroupOptions options;
    options.overlap = kOverlaps[job % 3];
    Groups groups = JoinAll(size, WiresOf(At(job) / 5), options);
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      SLUICE_RETURN_IF_ERROR(DoAll(program, group));
      // Each rank begins and waits for others.
      return DoAllLate(program, group,
                       seed + static_cast<uint32_t>(group.rank()));
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
    GroupOptions options;
    options.overlap = kOverlaps[job % 3];
    Groups groups = JoinAll(size, WiresOf(random()), options);
    CheckMismatch(groups, [&](Group& group) {
      const std::vector<Act>& mine = group.rank() == odd ? other : program;
      if (job % 2 == 0) return DoAll(mine, group);
      return DoAllLate(mine, group, static_cast<uint32_t>(job + group.rank()));
    });
  }
}

}  // namespace sluice::dist
