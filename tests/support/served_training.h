// Trainings by threads of this process, whose variables are on parameter
// servers of it.
#ifndef SLUICE_TESTS_SUPPORT_SERVED_TRAINING_H_
#define SLUICE_TESTS_SUPPORT_SERVED_TRAINING_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/job_servers.h"
#include "tests/support/worker_threads.h"

namespace sluice::testing {

using Lead = std::optional<int64_t>;
inline constexpr int64_t kAnyLead = INT64_MAX;
inline const Lead kSync = std::nullopt;

// The same task with variables on so many servers, cut over them from so many
// bytes on.
inline std::vector<Trained> TrainOn(
    int servers, int workers, Lead lead, Task task,
    std::optional<int64_t> dense_from = std::nullopt) {
  JobServers job(servers);
  task.options = [&, before = task.options](int rank) {
    TrainingOptions options = before(rank);
    options.servers = job.For(rank, lead);
    options.servers.dense_from = dense_from;
    return options;
  };
  return TrainWith(workers, task);
}

inline void CheckVariables(const Trained& a, const Trained& b) {
  REQUIRE(a.error == "");
  REQUIRE(b.error == "");
  REQUIRE(a.variables.size() == b.variables.size());
  for (const auto& [name, value] : a.variables) {
    CAPTURE(name);
    CHECK(value.BitEqual(b.variables.at(name)));
  }
}

// Of what is saved, the tensors are of the step that it says.
inline void CheckSaved(const std::string& log_dir, const Trained& trained) {
  const auto saved =
      CheckpointManager::ForReading(log_dir).RestoreNewest().ValueOrThrow();
  REQUIRE(saved);
  CHECK(saved->checkpoint.state.step == trained.result.steps);
  for (const NamedTensor& tensor : saved->checkpoint.tensors) {
    CAPTURE(tensor.name);
    CHECK(tensor.tensor.BitEqual(trained.variables.at(tensor.name)));
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SERVED_TRAINING_H_
