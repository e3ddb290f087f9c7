// Groups of a part of a job's ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/places.h"
#include "dist/net/little_endian.h"
#include "dist/net/socket.h"
#include "tests/dist/collective/acts.h"
#include "tests/dist/collective/faults.h"
#include "tests/dist/collective/processes.h"
#include "tests/dist/collective/ranks.h"
#include "tests/dist/collective/sums.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using sluice::testing::Rounds;
using namespace testing;  // NOLINT: of the job's test double

std::vector<Act> RandomActs(int count, std::mt19937& random) {
  std::vector<Act> program;
  for (int i = 0; i < count; ++i) program.push_back(RandomAct(random));
  return program;
}

std::vector<Act> With(int salt, std::vector<Act> program) {
  for (Act& act : program) act.salt = salt;
  return program;
}

// A group of four as two rows and two columns.
constexpr int kSide = 2;
Status SplitSquare(Group& group) {
  SLUICE_RETURN_IF_ERROR(group.Split("rows", group.rank() / kSide));
  return group.Split("columns", group.rank() % kSide);
}

// What a rank of that square is in, as errors name it.
std::string RowOf(int rank) {
  return rank < 2 ? "group 'rows' of ranks 0, 1 of 4"
                  : "group 'rows' of ranks 2, 3 of 4";
}
std::string ColumnOf(int rank) {
  return rank % 2 == 0 ? "group 'columns' of ranks 0, 2 of 4"
                       : "group 'columns' of ranks 1, 3 of 4";
}

bool Has(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

// Of a split by this name: tells the others a seat as theirs, and dies when
// rank 0 waits for who takes it.
Status DieInSplit(Group& group, const std::string& name) {
  const Deadline limit = After(std::chrono::seconds(50));
  constexpr size_t kColorAndKey = 8, kBytes = kColorAndKey + 4 + kAddressBytes;
  std::vector<std::byte> seat(kBytes), all(At(group.size()) * kBytes);
  std::byte* at = seat.data() + kColorAndKey;
  Put(uint32_t{1}, &at);  // a port, of which nobody asks anything
  PutText("127.0.0.1", kAddressBytes, &at);
  SLUICE_RETURN_IF_ERROR(
      group.AllGather("split/" + name, seat.data(), kBytes, all.data()));
  const std::byte* first = all.data() + kColorAndKey;
  SLUICE_ASSIGN_OR_RETURN(
      Socket zero,
      Socket::Connect("127.0.0.1", static_cast<int>(Take<uint32_t>(&first)),
                      limit));
  // It sends away who talks nonsense.
  SLUICE_RETURN_IF_ERROR(zero.Send(Bytes(seat), limit));
  if (zero.Receive(seat, limit).code() != Code::kUnavailable) {
    return Internal("rank 0 does not wait");
  }
  std::raise(SIGKILL);
  return {};
}

}  // namespace

TEST_CASE("parts are of the ranks of one colour, by key and rank") {
  std::mt19937 random(21);
  for (int job = 0; job < Rounds(24); ++job) {
    const int size = 1 + job % 6;
    const auto n = At(size);
    std::vector<int> colors(n), keys(n);
    for (size_t i = 0; i < n; ++i) {
      colors[i] = static_cast<int>(random() % 4) - 1;
      keys[i] = static_cast<int>(random() % 3) - 1;
    }
    // By colour: (key, rank) in order.
    std::map<int, std::vector<std::pair<int, int>>> wanted;
    for (size_t i = 0; i < n; ++i) {
      wanted[colors[i]].emplace_back(keys[i], static_cast<int>(i));
    }
    for (auto& [color, members] : wanted) {
      std::sort(members.begin(), members.end());
    }
    const auto program = RandomActs(5, random);
    const Watchdog watchdog;
    Groups groups = JoinAll(size, WiresOf(At(job)));
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      const size_t i = At(group.rank());
      SLUICE_RETURN_IF_ERROR(group.Split("part", colors[i], keys[i]));
      CHECK((group.Subgroup("other") == nullptr));
      Group* const part = group.Subgroup("part");
      CHECK((part == nullptr) == (colors[i] < 0));
      if (part != nullptr) {
        const auto& members = wanted.at(colors[i]);
        CHECK(part->size() == static_cast<int>(members.size()));
        CHECK(part->local_size() == part->size());
        CHECK(part->local_rank() == part->rank());
        CHECK(members.at(At(part->rank())).second == group.rank());
        SLUICE_RETURN_IF_ERROR(DoAll(With(colors[i], program), *part));
        // And a part of that.
        SLUICE_RETURN_IF_ERROR(part->Split("half", part->rank() % 2));
        Group* const half = part->Subgroup("half");
        CHECK(half->size() == (part->size() + 1 - part->rank() % 2) / 2);
        SLUICE_RETURN_IF_ERROR(
            DoAll(With(2 * colors[i] + part->rank() % 2, program), *half));
      }
      return DoAll(program, group);
    }));
  }
}

TEST_CASE("rows and columns do programs of all collectives side by side") {
  std::mt19937 random(22);
  for (int job = 0; job < Rounds(16); ++job) {
    const auto row = RandomActs(15, random), column = RandomActs(15, random),
               whole = RandomActs(15, random);
    const Watchdog watchdog;
    Groups groups = JoinAll(kSide * kSide, WiresOf(At(job)));
    CheckOk(OnAll(groups, [&](Group& group) -> Status {
      SLUICE_RETURN_IF_ERROR(SplitSquare(group));
      std::array<Status, 3> statuses;
      std::thread in_row([&] {
        statuses[0] =
            DoAll(With(1 + group.rank() / kSide, row), *group.Subgroup("rows"));
      });
      std::thread in_column([&] {
        statuses[1] = DoAll(With(3 + group.rank() % kSide, column),
                            *group.Subgroup("columns"));
      });
      statuses[2] = DoAll(whole, group);
      in_row.join();
      in_column.join();
      for (const Status& status : statuses) SLUICE_RETURN_IF_ERROR(status);
      return {};
    }));
  }
}

TEST_CASE("a rank that is gone is named in each of its groups") {
  const Watchdog watchdog;
  for (int gone = 0; gone < kSide * kSide; ++gone) {
    CAPTURE(gone);
    Groups groups = JoinAll(kSide * kSide);
    CheckOk(OnAll(groups, SplitSquare));
    groups[At(gone)].reset();
    const int in_row = gone ^ 1, in_column = gone ^ 2, other = gone ^ 3;
    const auto barrier = [&](int rank, const char* part) {
      Group* const group = groups[At(rank)]->Subgroup(part);
      Status status = group->Barrier("next");
      if (!status.ok()) {
        CHECK(group->Check().message() == group->status().message());
      }
      return status;
    };
    const Status row = barrier(in_row, "rows");
    const Status column = barrier(in_column, "columns");
    CAPTURE(row.ToString());
    CAPTURE(column.ToString());
    CHECK(Has(row, RowOf(gone)));
    CHECK(Has(row, RankName(gone % 2, 2)));
    CHECK(Has(column, ColumnOf(gone)));
    CHECK(Has(column, RankName(gone / 2, 2)));
    // What it is not in goes on.
    std::array<Status, 2> whole;
    InThreads(2, [&](int i) {
      whole[At(i)] = barrier(i == 0 ? other : in_column, "rows");
    });
    for (const Status& status : whole) CHECK(status.ToString() == "ok");
    // Where it is missed no part is formed any more.
    InThreads(kSide * kSide, [&](int rank) {
      if (rank == gone) return;
      Group& group = *groups[At(rank)];
      const Status first = group.Barrier("all");
      CHECK(Has(first, RankName(gone, kSide * kSide)));
      for (const char* name : {"rows", "more"}) {
        CHECK(group.Split(name, 0).ToString() == first.ToString());
      }
    });
  }
}

// By SIGKILL, while all are in both.
TEST_CASE("a process that is killed is named in each of its groups") {
  for (int lost = 0; lost < kSide * kSide; ++lost) {
    CAPTURE(lost);
    const Watchdog watchdog(std::chrono::minutes(2));
    const Processes processes =
        Start(kSide * kSide, WiresOf(At(lost)), std::chrono::seconds(20),
              [&](Group& group, const Process::Say& say) -> Status {
                SLUICE_RETURN_IF_ERROR(SplitSquare(group));
                const auto forever = [&](const std::string& name) {
                  Group* const part = group.Subgroup(name);
                  Status status;
                  for (int run = 0; status.ok(); ++run) {
                    status = part->Barrier("on and on");
                    if (run == 3) say("begun");
                  }
                  say(name + " " + status.ToString());
                };
                std::thread other(forever, "rows");
                forever("columns");
                other.join();
                return {};
              });
    for (const auto& process : processes) {
      CHECK(process->Line() == "begun");
      CHECK(process->Line() == "begun");
    }
    kill(processes[At(lost)]->pid(), SIGKILL);
    const auto says = [&](int rank, const std::string& which) {
      std::string line = processes[At(rank)]->Line();
      while (!line.empty() && !line.starts_with(which)) {
        line = processes[At(rank)]->Line();
      }
      return line;
    };
    const std::string row = says(lost ^ 1, "rows");
    const std::string column = says(lost ^ 2, "columns");
    CAPTURE(row);
    CAPTURE(column);
    CHECK(row.find(RowOf(lost)) != std::string::npos);
    CHECK(row.find(RankName(lost % 2, 2)) != std::string::npos);
    CHECK(column.find(ColumnOf(lost)) != std::string::npos);
    CHECK(column.find(RankName(lost / 2, 2)) != std::string::npos);
  }
}

// Long before the time to join is over.
TEST_CASE("a process that dies while a part is formed is named") {
  for (const Wires wires : {Wires::kTcp, Wires::kShared}) {
    const Watchdog watchdog(std::chrono::minutes(3));
    const Processes processes =
        Start(kSide * kSide, wires, std::chrono::seconds(20),
              [](Group& group, const Process::Say&) {
                return group.rank() == 1 ? DieInSplit(group, "all")
                                         : group.Split("all", 0);
              });
    for (const int rank : {0, 2, 3}) {
      const std::string line =
          LineWithin(*processes[At(rank)], std::chrono::seconds(30));
      CAPTURE(rank);
      CAPTURE(line);
      CHECK(line.find("rank 1 of 4 has ended") != std::string::npos);
    }
  }
}

TEST_CASE("splits that differ, or take a name twice, are everyone's error") {
  const Watchdog watchdog;
  Groups groups = JoinAll(3);
  CheckMismatch(groups, [](Group& group) {
    return group.Split(group.rank() == 1 ? "rows" : "columns", 0);
  });
  groups = JoinAll(2);
  const auto statuses = OnAll(groups, [](Group& group) -> Status {
    SLUICE_RETURN_IF_ERROR(group.Split("rows", 0));
    return group.Split("rows", 0);
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kAlreadyExists);
    CHECK(Has(status, "split 'rows'"));
  }
}

}  // namespace sluice::dist
