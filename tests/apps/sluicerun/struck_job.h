// Jobs of the program `struck` (struck.cc), one of each strategy, and what has
// to come of each when it is struck.
#ifndef SLUICE_TESTS_APPS_SLUICERUN_STRUCK_JOB_H_
#define SLUICE_TESTS_APPS_SLUICERUN_STRUCK_JOB_H_

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dist/net/tls.h"
#include "tests/places.h"
#include "tests/support/launched.h"
#include "tests/support/strikes.h"

namespace sluice::testing {

struct StruckJob {
  enum class Strategy : uint8_t {
    kRing,
    kVirtual,
    kSync,
    kAsync,
    kBounded,  // ssp
    kBacked,   // sync, with backup workers
    kElastic,
    kElasticVirtual,
    kPipeline,
    kMirrored
  };
  Strategy strategy = Strategy::kRing;
  int size = 1, servers = 0, backups = 0;
  int stages = 1, micro_batches = 4;
  int least = 0, restarts = 0;
  int most = 0;  // of an elastic one whose hosts come; its size is theirs then
  int epochs = 6, pace_us = 500;
  bool tcp = false, tls = false;  // in place of shared memory; and encrypted
  std::vector<Strike> strikes;

  static constexpr int kStepsPerEpoch = 8, kLeaves = 4;
  int steps() const { return kStepsPerEpoch * epochs; }
  bool elastic() const { return least > 0; }
  // Whether each worker has steps of its own.
  bool apart() const {
    return strategy == Strategy::kAsync || strategy == Strategy::kBounded;
  }
  // That the training is defined by, of one process; 0: none.
  int leaves() const {
    switch (strategy) {
      case Strategy::kVirtual:
      case Strategy::kElasticVirtual:
        return kLeaves;
      case Strategy::kPipeline:
        return micro_batches * size / stages;
      case Strategy::kMirrored:
        return 2;
      default:
        return 0;
    }
  }
  // Whether there is one training that it has the bits of.
  bool has_bits() const {
    return !apart() && strategy != Strategy::kElastic &&
           strategy != Strategy::kBacked;
  }

  std::string Text() const {
    constexpr const char* kNames[] = {
        "ring",     "virtual workers", "ps sync", "ps async",
        "ps ssp",   "ps backed",       "elastic", "elastic virtual workers",
        "pipeline", "mirrored"};
    return fmt::format(
        "{} of {} processes, {} servers, {} backups, {} stages, elastic {}, "
        "{} restarts{}{}: {}",
        kNames[static_cast<int>(strategy)], size, servers, backups, stages,
        least, restarts, tcp ? ", tcp" : "", tls ? ", tls" : "",
        TextOf(strikes));
  }

  // The launcher's words. Without `marks` nothing happens to anybody.
  Words Command(const std::string& log_dir, const std::string& marks) const {
    Words words = {"--timeout-kill", "2"};
    const auto add = [&words](const Words& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    if (most == 0) add({"-n", std::to_string(size)});
    if (servers > 0) add({"--ps", std::to_string(servers)});
    if (least > 0) {
      add({"--elastic", most == 0 ? std::to_string(least)
                                  : fmt::format("{}:{}", least, most)});
    }
    if (restarts > 0) add({"--max-restarts", std::to_string(restarts)});
    if (tls) add({"--tls"});
    add({SLUICE_BIN_DIR "/struck", "--pace", std::to_string(pace_us)});
    if (!marks.empty()) {
      add({"--strikes", TextOf(strikes), "--marks", marks});
    }
    add(Training(log_dir));
    if (tcp) add({"--transport", "tcp"});
    switch (strategy) {
      case Strategy::kSync:
      case Strategy::kAsync:
        add({"--strategy", "ps", "--consistency", apart() ? "async" : "sync"});
        break;
      case Strategy::kBounded:
        add({"--strategy", "ps", "--consistency", "ssp:1"});
        break;
      case Strategy::kBacked:
        add({"--strategy", "ps", "--backup-workers", std::to_string(backups)});
        break;
      case Strategy::kPipeline:
        add({"--pipeline-stages", std::to_string(stages), "--micro-batches",
             std::to_string(micro_batches)});
        break;
      case Strategy::kMirrored:
        add({"--strategy", "mirrored", "--devices", "/cpu:0,/cpu:1"});
        break;
      default:
        if (leaves() > 0) {
          add({"--virtual-workers", std::to_string(leaves())});
        }
    }
    return words;
  }
  // Of the undisturbed training that it has the bits of.
  Words Undisturbed(const std::string& log_dir) const {
    // A table's gradient goes as rows on a ring, whole on servers; so others
    // are added up in other pieces, which two processes would not tell.
    if (strategy == Strategy::kSync && size > 2) return Command(log_dir, "");
    const int processes = leaves() > 0 ? 1 : size;
    Words words = {"-n", std::to_string(processes), SLUICE_BIN_DIR "/struck"};
    const Words training = Training(log_dir);
    words.insert(words.end(), training.begin(), training.end());
    if (leaves() > 0) {
      words.insert(words.end(),
                   {"--virtual-workers", std::to_string(leaves())});
    }
    return words;
  }

 private:
  Words Training(const std::string& log_dir) const {
    return {"train",
            "--log-dir",
            log_dir,
            "--epochs",
            std::to_string(epochs),
            "--deterministic",
            "--threads",
            "1",
            "--log-every",
            "1",
            "--save-every",
            "7",
            "--evaluate-every",
            "1.5",
            "--peer-timeout",
            "3",
            "--join-timeout",
            "6"};
  }
};

// The strategies of random jobs, by their numbers in turn.
inline constexpr StruckJob::Strategy kStruckTurns[] = {
    StruckJob::Strategy::kRing,           StruckJob::Strategy::kElasticVirtual,
    StruckJob::Strategy::kSync,           StruckJob::Strategy::kPipeline,
    StruckJob::Strategy::kElastic,        StruckJob::Strategy::kBacked,
    StruckJob::Strategy::kAsync,          StruckJob::Strategy::kVirtual,
    StruckJob::Strategy::kElasticVirtual, StruckJob::Strategy::kBounded,
    StruckJob::Strategy::kMirrored,       StruckJob::Strategy::kSync};

// The number says all of it.
inline StruckJob RandomStruckJob(unsigned number) {
  using Strategy = StruckJob::Strategy;
  using Harm = Strike::Harm;
  using Phase = Strike::Phase;
  std::mt19937 random(number);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  StruckJob job;
  job.strategy = kStruckTurns[number % std::size(kStruckTurns)];
  job.size = 2 + below(3);
  job.restarts = below(3) == 0 ? 1 : 0;
  bool served = false, elastic = false;
  switch (job.strategy) {
    case Strategy::kSync:
    case Strategy::kAsync:
    case Strategy::kBounded:
    case Strategy::kBacked:
      served = true;
      job.size = 1 + below(3);
      job.servers = 1 + below(2);
      job.restarts = below(2);
      if (job.strategy == Strategy::kBacked) job.backups = below(job.size);
      break;
    case Strategy::kElastic:
    case Strategy::kElasticVirtual:
      elastic = true;
      job.least = 1 + below(job.size);
      job.restarts = below(3);
      job.epochs = 20;
      job.pace_us = 4000;
      break;
    case Strategy::kPipeline:
      job.stages = job.size == 3 ? 3 : 2;
      break;
    case Strategy::kMirrored:
      job.size = 1;
      break;
    default:
      break;
  }
  if (job.strategy != Strategy::kMirrored) {
    job.tcp = below(2) == 0;
    job.tls = job.tcp && dist::HasTls() && below(2) == 0;
  }
  const int count = elastic ? 1 + below(2) : 1;
  for (int i = 0; i < count; ++i) {
    Strike strike;
    strike.server = served && below(2) == 0;
    strike.number = below(strike.server ? job.servers : job.size);
    strike.harm = below(3) == 0 ? Harm::kStop : Harm::kKill;
    // Nobody waits for one process that stands still.
    if (job.size == 1 && !strike.server) strike.harm = Harm::kKill;
    // Servers read nothing, and save nothing.
    constexpr Phase kOfServers[] = {Phase::kStart, Phase::kSending,
                                    Phase::kSending, Phase::kComputing,
                                    Phase::kEnd};
    // Before there is a first group, and when all is done, twice as often.
    constexpr Phase kTwice[] = {Phase::kStart, Phase::kEnd};
    const int drawn = below(strike.server ? 5 : 9);
    strike.phase = strike.server ? kOfServers[drawn]
                   : drawn < 7   ? static_cast<Phase>(drawn)
                                 : kTwice[drawn - 7];
    // One is left that ends, or it would be as if a user had stopped all.
    if (strike.phase == Phase::kEnd && elastic && job.size < 3) {
      strike.harm = Harm::kKill;
    }
    if (strike.phase == Phase::kSaving) strike.number = 0;
    if (strike.server && strike.harm == Harm::kStop) job.restarts = 0;
    const int batches = job.steps() * std::max(1, job.leaves() / job.size) /
                        (job.apart() ? job.size : 1);
    switch (strike.phase) {
      case Phase::kSending:
        strike.at = strike.server || below(3) == 0 ? 0 : 1 + below(batches);
        strike.then = 1 + below(strike.server ? 400 : job.tcp ? 10 : 3);
        break;
      case Phase::kComputing:
        strike.at = strike.server || below(3) == 0 ? 0 : 1 + below(batches);
        strike.then = below(strike.at == 0 ? 200'000 : 3000);
        break;
      case Phase::kReading:
        strike.at = 1 + below(batches);
        break;
      case Phase::kEvaluating:
        strike.at = 1 + below(6);
        break;
      case Phase::kSaving:
        strike.at = 1 + below(4);
        strike.then = below(2);
        break;
      default:
        break;
    }
    job.strikes.push_back(strike);
  }
  return job;
}

// Of a job that is not to hang.
inline int CodeOf(const Process& process) {
  const std::optional<int> code = process.EndWithin(std::chrono::seconds(150));
  CAPTURE(process.err());
  REQUIRE_MESSAGE(code.has_value(), "the job hangs");
  return *code;
}

// Those strikes that have come.
inline std::vector<Strike> StrikesThatCame(const StruckJob& job,
                                           const std::string& marks) {
  std::vector<Strike> came;
  for (size_t i = 0; i < job.strikes.size(); ++i) {
    const std::string mark = marks + "/" + std::to_string(i);
    if (access(mark.c_str(), F_OK) == 0) came.push_back(job.strikes[i]);
  }
  return came;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_APPS_SLUICERUN_STRUCK_JOB_H_
