// The reports for programs.
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "engine/text/json.h"
#include "models/cli/console.h"
#include "models/cli/progress.h"

namespace sluice {
namespace {

void Print(const Json& event) {
  console::Print(event.Text());
}

}  // namespace

// Linux tells the start in clock ticks since boot, as field 22 of
// /proc/self/stat; the name in field 2 may hold spaces but ends with ')'.
double ProcessSeconds() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec) -
         std::strtod(field.c_str(), nullptr) /
             static_cast<double>(sysconf(_SC_CLK_TCK));
}

void JsonEvents::Begin(TrainingRun& run) {
  throughput_.Start(run);
  Json total_steps;  // null where it is not known, or there is no end
  if (run.has_last_step()) total_steps = run.total_steps();
  const size_t input_bytes = run.context().input_bytes;
  Json event = {{"event", "start"},
                {"step", run.step()},
                {"total_steps", total_steps},
                {"batch_size", run.batch_size()},
                {"workers", run.workers().size()},
                {"input_threads", run.context().input_threads},
                {"input_bytes",
                 input_bytes > 0 ? input_bytes : Dataset::DefaultAheadBytes()},
                {"learning_rate", run.learning_rate().description()}};
  const int64_t virtual_workers = run.workers().virtual_workers();
  if (virtual_workers > 0) event["virtual_workers"] = virtual_workers;
  const int stages = run.workers().stages();
  if (stages > 1) event["pipeline_stages"] = stages;
  const MirroredDevices& mirrored = run.options().mirrored;
  if (mirrored.any()) event["devices"] = mirrored.devices;
  Print(event);
}

bool JsonEvents::Measures(const TrainingRun& run, int64_t step) const {
  return run.Passes(step, every_) ||
         (run.knows_total_steps() && step >= run.total_steps());
}

void JsonEvents::AfterStep(TrainingRun& run) {
  if (first_) {
    first_ = false;
    Print({{"event", "first_step"}, {"seconds", ProcessSeconds()}});
  }
  if (!Measures(run, run.step())) return;
  Json event = {
      {"event", "step"}, {"step", run.step()}, {"epoch", run.epoch()}};
  // A worker that had no example of this step has those of another.
  if (const Measurement& measured = run.measurement();
      measured.step == run.step()) {
    event["loss"] = measured.loss;
    event["learning_rate"] = measured.learning_rate;
    if (measured.loss_scale) event["loss_scale"] = *measured.loss_scale;
    for (const auto& [name, value] : measured.metrics) event[name] = value;
  }
  const Rates rates = throughput_.Since(run);
  event["examples_per_second"] = rates.examples_per_second;
  event["input_wait"] = rates.input_wait;
  if (run.workers().several()) {
    event["examples_per_second_per_worker"] =
        rates.examples_per_second / run.workers().size();
    event["exchange_wait"] = rates.exchange_wait;
  }
  if (!rates.worker_examples_per_second.empty()) {
    event["examples_per_second_by_rank"] = rates.worker_examples_per_second;
  }
  if (!rates.worker_exchange_waits.empty()) {
    event["exchange_wait_by_rank"] = rates.worker_exchange_waits;
  }
  if (!rates.staleness.empty()) {
    event["staleness_mean"] = MeanOf(rates.staleness);
    event["staleness_max"] = rates.staleness.rbegin()->first;
  }
  if (!run.dropped().empty()) event["dropped"] = run.dropped();
  if (!rates.input_stage.empty()) event["input_stage"] = rates.input_stage;
  Print(event);
}

void JsonEvents::AfterEvaluation(TrainingRun& run,
                                 const Evaluation& evaluation) {
  Json event = {{"event", "evaluation"},
                {"step", run.step()},
                {"epoch", run.epoch()},
                {"evaluated_on", evaluation.set},
                {"examples", evaluation.examples}};
  for (const auto& [name, value] : evaluation.values) event[name] = value;
  event["seconds"] = evaluation.seconds;
  Print(event);
}

}  // namespace sluice
