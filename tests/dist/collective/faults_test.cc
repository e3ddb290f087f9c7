// Faults of a seeded script, and who names whom: every survivor the lost one,
// within the peer timeout. SLUICE_TEST_FAULTS says how many, SLUICE_TEST_SEED
// which (scripts/faults.sh).
#include "tests/dist/collective/faults.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dist/net/authority.h"
#include "dist/net/tls.h"
#include "tests/support/net_hosts.h"
#include "tests/support/required.h"
#include "tests/support/sanitizers.h"

namespace sluice::dist {
namespace {

using namespace testing;  // NOLINT: of the job's test double
using sluice::testing::NetHosts;
using sluice::testing::Rounds;
using std::chrono::milliseconds;

constexpr milliseconds kPeerTimeout(3000);
// Of a busy machine's: for the line to come through the pipe.
constexpr milliseconds kSlack(2000);

int Number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// One job; what is wrong with what its survivors say, or nothing.
void Run(const Fault& fault) {
  CAPTURE(fault.Text());
  const Processes processes = Start(
      fault.size, fault.wires, kPeerTimeout,
      [&](Group& group, const Process::Say& say) {
        return TrainUnder(fault, group, say);
      },
      fault.all_reduce);
  const std::string name = RankName(fault.lost, fault.size);
  const std::string code =
      fault.harm == Harm::kStop ? "deadline exceeded: " : "unavailable: ";
  for (int rank = 0; rank < fault.size; ++rank) {
    if (rank == fault.lost) continue;
    const Process& process = *processes[static_cast<size_t>(rank)];
    CAPTURE(rank);
    // Joining and the steps before take a while, too.
    const std::string line =
        LineWithin(process, kPeerTimeout + kSlack + milliseconds(3000));
    CAPTURE(line);
    CHECK(line.starts_with(code + name));
  }
}

TEST_CASE("every survivor names the lost rank, within the peer timeout") {
  const int count = Number("SLUICE_TEST_FAULTS", Rounds(30));
  std::mt19937 random(
      static_cast<unsigned>(Number("SLUICE_TEST_SEED", 20'261'124)));
  for (int i = 0; i < count; ++i) {
    const Watchdog watchdog(std::chrono::minutes(2));
    Run(RandomFault(random));
  }
}

// From the moment that the process stands still.
TEST_CASE("a stopped process is named within the peer timeout") {
  const Watchdog watchdog(std::chrono::minutes(2));
  for (const int lost : {0, 2}) {
    Fault fault{};
    fault.size = 3;
    fault.lost = lost;
    fault.harm = Harm::kSay;
    fault.phase = Phase::kAlone;
    fault.step = 2;
    fault.wires = Wires::kTcp;
    const Processes processes =
        Start(3, fault.wires, kPeerTimeout,
              [&](Group& group, const Process::Say& say) {
                return TrainUnder(fault, group, say);
              });
    const Process& stopped = *processes[static_cast<size_t>(lost)];
    REQUIRE(stopped.Line() == "here");
    kill(stopped.pid(), SIGSTOP);
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      const std::string line = LineWithin(*processes[static_cast<size_t>(rank)],
                                          kPeerTimeout + kSlack);
      CAPTURE(line);
      CHECK(line.starts_with("deadline exceeded: " + RankName(lost, 3)));
    }
    const auto took = std::chrono::duration_cast<milliseconds>(
        std::chrono::steady_clock::now() - begin);
    MESSAGE("named after " << took.count() << " ms");
    CHECK(took > kPeerTimeout / 2);
    CHECK(took <= kPeerTimeout + kSlack);
    // Once it goes on it hears of it; the coordinator, that the others ended.
    kill(stopped.pid(), SIGCONT);
    const std::string own = LineWithin(stopped, kPeerTimeout + kSlack);
    CAPTURE(own);
    CHECK(own.find(lost == 0 ? "has ended" : RankName(lost, 3)) !=
          std::string::npos);
  }
}

// A job whose ranks are hosts of their own, until a way is cut; what each says.
class CutJob {
 public:
  CutJob(const NetHosts& hosts, int size, bool encrypted, int net) {
    const auto authority =
        encrypted ? std::optional(Authority::Create("test").ValueOrThrow())
                  : std::nullopt;
    for (int rank = 0; rank < size; ++rank) {
      LaunchInfo info;
      info.rank = rank;
      info.size = size;
      info.host = hosts.AddressOf(0);
      info.port = 4000 + net;
      info.token = Token();
      info.allow_plaintext = !encrypted;
      if (authority) {
        info.credentials =
            authority->Issue("worker", rank, std::chrono::hours(1))
                .ValueOrThrow();
      }
      processes_.push_back(
          std::make_unique<Process>([&](const Process::Say& say) {
            if (!hosts.Enter(rank)) return;
            GroupOptions options;
            options.peer_timeout = kPeerTimeout;
            // All are on one system, where hosts are only pretended.
            options.transport = Transport::kTcp;
            auto group = Group::Join(info, options);
            Status status = group.status();
            if (group.ok()) status = Train(**group, say);
            say(status.ToString());
          }));
    }
    for (const auto& process : processes_) {
      REQUIRE(LineWithin(*process, std::chrono::seconds(20)) == "begun");
    }
  }
  std::string Says(int rank) const {
    return LineWithin(*processes_[static_cast<size_t>(rank)],
                      2 * kPeerTimeout + kSlack);
  }

 private:
  static Status Train(Group& group, const Process::Say& say) {
    std::vector<float> data(50'000, 1.F);
    for (int step = 0;; ++step) {
      SLUICE_RETURN_IF_ERROR(group.AllReduce("x", DType::kFloat32, data.data(),
                                             50'000, Reduction::kMean));
      if (step == 3) say("begun");
    }
  }

  Processes processes_;
};

TEST_CASE("a host that is cut off is named by all others, a cut way by all") {
  constexpr int kNet = 214, kSize = 4;
  const bool tls = HasTls();
  for (const int lost : {0, 1, 3, -1}) {
    const NetHosts hosts(kNet, kSize);
    const Watchdog watchdog(std::chrono::minutes(2));
    if (!hosts.made()) {
      sluice::testing::SkipForHosts("no network name spaces to be made");
      return;
    }
    const CutJob job(hosts, kSize, tls && lost != 1, kNet);
    if (lost >= 0) {
      REQUIRE(hosts.CutOff(lost));
    } else {
      REQUIRE(hosts.CutBetween(1, 2));
    }
    for (int rank = 0; rank < kSize; ++rank) {
      const std::string line = job.Says(rank);
      CAPTURE(lost);
      CAPTURE(rank);
      CAPTURE(line);
      if (lost < 0) {
        CHECK(line.find("cannot reach") != std::string::npos);
        CHECK(line.find(RankName(1, kSize)) != std::string::npos);
        CHECK(line.find(RankName(2, kSize)) != std::string::npos);
      } else if (rank != lost) {
        CHECK(line.starts_with("deadline exceeded: " + RankName(lost, kSize)));
      } else {
        // Whom it has lost first is all the same to it.
        CHECK(line.starts_with("deadline exceeded: rank "));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::dist
