// Parts of a job that is together through an MPI, of which thread_mpi.h is one,
// and ranks that have run out of data.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/mpi/mpi_group.h"
#include "engine/tensor.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/mpi/thread_mpi.h"
#include "tests/support/error_text.h"

namespace sluice::dist {
namespace {

using sluice::testing::Contains;
using testing::ThreadMpi;
using testing::Watchdog;

std::unique_ptr<MpiGroup> Joined() {
  return MpiGroup::Join(ThreadMpi::Calls(), {.allow_plaintext = true})
      .ValueOrThrow();
}

// All that a group of these ranks of the job can do, checked by each.
Status Use(MpiGroup& group, const std::vector<int>& members,
           const std::string& name) {
  const int64_t own = members.at(static_cast<size_t>(group.rank()));
  int64_t wanted = 0;
  for (const int member : members) wanted += (member + 1) * (member + 1);
  int64_t sum = (own + 1) * (own + 1);
  SLUICE_RETURN_IF_ERROR(
      group.AllReduce(name, DType::kInt64, &sum, 1, Reduction::kSum));
  if (sum != wanted) return Internal(fmt::format("{} is no {}", sum, wanted));
  std::vector<int64_t> all(members.size());
  SLUICE_RETURN_IF_ERROR(group.AllGather(name, &own, sizeof(own), all.data()));
  if (!std::equal(all.begin(), all.end(), members.begin())) {
    return Internal("gathered something else");
  }
  int64_t last = own;
  SLUICE_RETURN_IF_ERROR(
      group.Broadcast(name, &last, sizeof(last), group.size() - 1));
  if (last != members.back()) return Internal("another one's");
  return group.Barrier(name);
}

std::string TextOf(const Status& status) {
  return status.ToString();
}

// Of the first two, whoever it is that does not come.
TEST_CASE("what ranks wait in for long is said") {
  for (int missing = 0; missing < 3; ++missing) {
    CAPTURE(missing);
    const Watchdog watchdog;
    std::mutex mutex;
    std::vector<std::string> said;
    constexpr int kLines = 4;
    std::atomic<int> lines = 0;
    ThreadMpi(3, 3).Run([&](int rank) {
      MpiGroup::Options options;
      options.stall_note = std::chrono::milliseconds(40);
      options.stalled = [&](std::string_view line) {
        // Joining may take as long, too.
        if (line.find("in barrier 'all'") == std::string_view::npos) return;
        const std::lock_guard lock(mutex);
        said.emplace_back(line);
        ++lines;
      };
      const auto group =
          MpiGroup::Join(ThreadMpi::Calls(), options).ValueOrThrow();
      if (rank == missing) {
        while (lines < kLines) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      CHECK(group->Barrier("all").ok());
    });
    // Behind them there may be some of the one that was missing.
    said.resize(kLines);
    for (const std::string& line : said) {
      CAPTURE(line);
      const std::string rest = " of 3 has been in barrier 'all' for ";
      CHECK(((missing != 0 && line.starts_with("rank 0" + rest)) ||
             (missing != 1 && line.starts_with("rank 1" + rest))));
    }
  }
}

TEST_CASE("parts through an MPI are of one colour, by key and rank") {
  std::mt19937 random(21);
  for (int job = 0; job < 24; ++job) {
    const Watchdog watchdog;
    const int size = 1 + job % 6;
    std::vector<int> colors, keys, all;
    // By colour: (key, rank) in order.
    std::map<int, std::vector<std::pair<int, int>>> in_order;
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(rank);
      colors.push_back(static_cast<int>(random() % 4) - 1);
      keys.push_back(static_cast<int>(random() % 3) - 1);
      in_order[colors.back()].emplace_back(keys.back(), rank);
    }
    std::map<int, std::vector<int>> wanted;
    for (auto& [color, ranks] : in_order) {
      std::sort(ranks.begin(), ranks.end());
      for (const auto& one : ranks) wanted[color].push_back(one.second);
    }
    ThreadMpi(size, 2).Run([&](int rank) {
      const auto own = static_cast<size_t>(rank);
      const auto group = Joined();
      CHECK(TextOf(group->Split("part", colors[own], keys[own])) == "ok");
      CHECK((group->Subgroup("other") == nullptr));
      MpiGroup* const part = group->Subgroup("part");
      REQUIRE((part == nullptr) == (colors[own] < 0));
      if (part != nullptr) {
        const std::vector<int>& members = wanted.at(colors[own]);
        REQUIRE(part->size() == static_cast<int>(members.size()));
        CHECK(members.at(static_cast<size_t>(part->rank())) == rank);
        CHECK(part->local_size() ==
              std::count_if(members.begin(), members.end(),
                            [&](int other) { return other / 2 == rank / 2; }));
        CHECK(TextOf(Use(*part, members, "p")) == "ok");
        // And a part of that.
        CHECK(TextOf(part->Split("half", part->rank() % 2)) == "ok");
        std::vector<int> half;
        for (size_t i = static_cast<size_t>(part->rank() % 2);
             i < members.size(); i += 2) {
          half.push_back(members[i]);
        }
        CHECK(TextOf(Use(*part->Subgroup("half"), half, "h")) == "ok");
      }
      CHECK(TextOf(Use(*group, all, "a")) == "ok");
    });
  }
}

// Four ranks as two rows and two columns.
constexpr int kSide = 2;

std::unique_ptr<MpiGroup> JoinedInSquare() {
  auto group = Joined();
  REQUIRE(group->Split("rows", group->rank() / kSide).ok());
  REQUIRE(group->Split("columns", group->rank() % kSide).ok());
  return group;
}

std::vector<int> RowOf(int rank) {
  const int first = rank / kSide * kSide;
  return {first, first + 1};
}
std::vector<int> ColumnOf(int rank) {
  return {rank % kSide, rank % kSide + kSide};
}

TEST_CASE("each group of an MPI has an order of its own") {
  const Watchdog watchdog;
  ThreadMpi(kSide * kSide, 1).Run([](int rank) {
    const auto group = JoinedInSquare();
    std::array<Status, 3> statuses;
    const auto often = [&](size_t which, MpiGroup& of,
                           const std::vector<int>& members) {
      for (int run = 0; run < 20 && statuses[which].ok(); ++run) {
        statuses[which] = Use(of, members, std::to_string(run));
      }
    };
    std::thread row([&] { often(0, *group->Subgroup("rows"), RowOf(rank)); });
    std::thread column(
        [&] { often(1, *group->Subgroup("columns"), ColumnOf(rank)); });
    often(2, *group, {0, 1, 2, 3});
    row.join();
    column.join();
    for (const Status& status : statuses) CHECK(TextOf(status) == "ok");
  });
}

TEST_CASE("what differs in a part of an MPI is that part's error alone") {
  for (int astray = 0; astray < kSide * kSide; ++astray) {
    CAPTURE(astray);
    const Watchdog watchdog;
    ThreadMpi(kSide * kSide, 1).Run([&](int rank) {
      const auto group = JoinedInSquare();
      MpiGroup& row = *group->Subgroup("rows");
      const std::string name = rank == astray ? "b" : "a";
      const Status status = row.Barrier(name);
      if (rank / kSide == astray / kSide) {
        const std::string text = status.message();
        CHECK(status.code() == Code::kFailedPrecondition);
        CHECK(Contains(text,
                       fmt::format("group 'rows' of ranks {}, {} of 4: ranks "
                                   "are at different collectives: rank 0 of 2",
                                   RowOf(rank)[0], RowOf(rank)[1])));
        CHECK(Contains(text, "barrier 'a'"));
        CHECK(Contains(text, "barrier 'b'"));
        CHECK(row.Barrier("later").message() == text);
      } else {
        CHECK(TextOf(status) == "ok");
        CHECK(TextOf(Use(row, RowOf(rank), "r")) == "ok");
      }
      CHECK(TextOf(Use(*group->Subgroup("columns"), ColumnOf(rank), "c")) ==
            "ok");
      CHECK(TextOf(Use(*group, {0, 1, 2, 3}, "g")) == "ok");
    });
  }
}

// Each of the others waits for rank 0 in another group.
TEST_CASE("who leaves an MPI, or ends, is heard in each of its groups") {
  for (const bool leaves : {true, false}) {
    CAPTURE(leaves);
    const Watchdog watchdog;
    ThreadMpi(kSide * kSide, 1).Run([&](int rank) {
      const auto group = JoinedInSquare();
      if (rank == 0) {
        if (!leaves) return;
        group->Leave(Status(Code::kInternal, "no space"));
        CHECK(group->Check().code() == Code::kInternal);
        CHECK(group->Check().message() == "rank 0 of 4 failed: no space");
        return;
      }
      MpiGroup* const in = rank == 1   ? group->Subgroup("rows")
                           : rank == 2 ? group->Subgroup("columns")
                                       : group.get();
      const Status status = in->Barrier("b");
      const std::string text = status.message();
      const int size = in->size();
      CHECK(status.code() ==
            (leaves ? Code::kUnavailable : Code::kFailedPrecondition));
      CHECK(Contains(
          text,
          fmt::format(fmt::runtime(leaves ? "rank 0 of {} failed: no space"
                                          : "rank 0 of {} at its end"),
                      size)));
      CHECK(Contains(text, rank == 1   ? "group 'rows' of ranks 0, 1 of 4: "
                           : rank == 2 ? "group 'columns' of ranks 0, 2 of 4: "
                                       : "rank 0 of 4"));
    });
  }
}

TEST_CASE("splits of an MPI that differ, or take a name twice, are errors") {
  const Watchdog watchdog;
  ThreadMpi(3, 3).Run([](int rank) {
    const auto group = Joined();
    const Status status = group->Split(rank == 1 ? "rows" : "columns", 0);
    CHECK(status.code() == Code::kFailedPrecondition);
    CHECK(Contains(status.message(), "split 'rows'"));
    CHECK(Contains(status.message(), "split 'columns'"));
    CHECK((group->Subgroup("rows") == nullptr));
  });
  ThreadMpi(2, 2).Run([](int) {
    const auto group = Joined();
    CHECK(group->Split("rows", 0).ok());
    const Status status = group->Split("rows", 0);
    CHECK(status.code() == Code::kAlreadyExists);
    CHECK(Contains(status.message(), "split 'rows'"));
  });
  ThreadMpi(2, 2).Run([](int rank) {
    const auto group = Joined();
    const Status status = group->Split(rank == 1 ? "" : "rows", 0);
    CHECK(status.code() ==
          (rank == 1 ? Code::kAlreadyExists : Code::kUnavailable));
    CHECK(Contains(status.message(), "split ''"));
  });
}

// Rank r has r batches, and each rank one in a second round.
TEST_CASE("ranks of an MPI without data give zeros until all have joined") {
  for (const int size : {1, 2, 3, 5}) {
    CAPTURE(size);
    const Watchdog watchdog;
    ThreadMpi(size, size).Run([&](int rank) {
      const auto group = Joined();
      for (const bool alike : {false, true}) {
        const int own = alike ? 1 : rank;
        for (int batch = 0; batch < own; ++batch) {
          // Of the ranks that have this batch.
          const int first = alike ? 0 : batch + 1;
          double wanted = 0;
          for (int other = first; other < size; ++other) wanted += other + 0.5;
          for (const Reduction how : {Reduction::kSum, Reduction::kMean}) {
            Tensor x = Tensor::Full(DType::kFloat32, {1000},
                                    static_cast<float>(rank) + 0.5F);
            CHECK(TextOf(group->AllReduce("x", x.dtype(), x.raw(), 1000,
                                          how)) == "ok");
            const double mean =
                how == Reduction::kMean ? wanted / size : wanted;
            CHECK(x.At(999) == doctest::Approx(mean));
          }
        }
        const Result<int> last = group->Follow();
        REQUIRE(last.ok());
        CHECK(*last == size - 1);
        CHECK(TextOf(group->Barrier("after")) == "ok");
      }
    });
  }
  // Of those with the most collectives, not of all.
  const Watchdog watchdog;
  ThreadMpi(3, 3).Run([](int rank) {
    const auto group = Joined();
    int64_t x = 1;
    if (rank < 2) {
      CHECK(group->AllReduce("x", DType::kInt64, &x, 1, Reduction::kSum).ok());
      CHECK(x == 2);
    }
    CHECK(group->Follow().ValueOrThrow() == 1);
  });
}

TEST_CASE("but all-reduces are everyone's error where one has joined an MPI") {
  const Watchdog watchdog;
  const auto follow = [](MpiGroup& group) {
    const Result<int> last = group.Follow();
    REQUIRE_FALSE(last.ok());
    return last.status();
  };
  ThreadMpi(3, 3).Run([&](int rank) {
    const auto group = Joined();
    const Status status =
        rank == 1 ? follow(*group) : group->Barrier("all here");
    CHECK(status.code() == Code::kFailedPrecondition);
    CHECK(Contains(status.message(),
                   "rank 0 of 3 is at barrier 'all here', rank 1 of 3 has "
                   "joined: it takes part in all-reduces alone"));
    CHECK(group->Check().message() == status.message());
  });
  ThreadMpi(3, 3).Run([&](int rank) {
    const auto group = Joined();
    int64_t x = 1;
    const Status status =
        rank == 0 ? follow(*group)
                  : group->AllReduce(rank == 1 ? "a" : "b", DType::kInt64, &x,
                                     1, Reduction::kSum);
    CHECK(Contains(status.message(), "rank 1 of 3 at sum of 'a'"));
    CHECK(Contains(status.message(), "rank 2 at sum of 'b'"));
  });
  ThreadMpi(2, 2).Run([&](int rank) {
    const auto group = Joined();
    if (rank == 1) {
      group->Leave(Status(Code::kInternal, "no space"));
    } else {
      CHECK(follow(*group).message() == "rank 1 of 2 failed: no space");
    }
  });
}

}  // namespace
}  // namespace sluice::dist
