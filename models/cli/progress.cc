#include "models/cli/progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/text/thousands.h"
#include "engine/threads.h"
#include "models/cli/console.h"
#include "models/cli/model_summary.h"
#include "models/train/run/leaf_steps.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// Of Rates' waits, what is worth saying.
constexpr double kNotableWait = 0.1;

// "1,234 examples/s (617 per worker)". Of workers with their own speeds the
// slowest is named where it is much slower.
std::string Speed(const Rates& rates, int workers) {
  const auto text = [](double rate) {
    return WithThousands(static_cast<int64_t>(rate));
  };
  std::string speed = text(rates.examples_per_second) + " examples/s";
  if (workers == 1) return speed;
  const double each = rates.examples_per_second / workers;
  speed += fmt::format(" ({} per worker", text(each));
  const std::vector<double>& all = rates.worker_examples_per_second;
  const auto slowest = std::min_element(all.begin(), all.end());
  if (slowest != all.end() && *slowest < (1 - kNotableWait) * each) {
    speed +=
        fmt::format(", {} of rank {}", text(*slowest), slowest - all.begin());
  }
  return speed + ")";
}

// Who waits least is who the others wait for.
std::string WaitForOthers(const Rates& rates) {
  const std::vector<double>& all = rates.worker_exchange_waits;
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  if (least != most && *most - *least >= kNotableWait) {
    return fmt::format(
        ", rank {} waits {:.0f} % of the time for other processes, rank {} "
        "{:.0f} %",
        least - all.begin(), 100 * *least, most - all.begin(), 100 * *most);
  }
  if (rates.exchange_wait < kNotableWait) return "";
  return fmt::format(", {:.0f} % for other processes",
                     100 * rates.exchange_wait);
}

}  // namespace

std::string Describe(
    const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    if (!text.empty()) text += ", ";
    text += name.find("accuracy") != std::string::npos
                ? fmt::format("{} {:.2f} %", name, 100 * value)
                : fmt::format("{} {:.4g}", name, value);
  }
  return text;
}

void Progress::Begin(TrainingRun& run) {
  throughput_.Start(run);
  shown_ = Clock::now();
}

void PassTimes::Begin(TrainingRun& run) {
  for (const StepInfo::Pass& pass : run.info().passes) {
    console::Note(fmt::format("pass {}: {:.2f} ms, {} nodes", pass.name,
                              pass.seconds * 1e3, pass.nodes));
  }
}

// (p - 1) / (m + p - 1) is what p stages that take equally long leave idle with
// m micro-batches, if nothing else does (PipeDream-Flush, Megatron-LM, 2021).
void PipelineBubble::End(TrainingRun& run) {
  const Workers& workers = run.workers();
  if (workers.stages() == 1) return;
  const std::vector<LeafGradients::Seconds> seconds =
      workers.GatherEach("pipeline", run.leaves()->seconds());
  double all_seconds = 0, idle_seconds = 0;
  for (const auto& [all, busy] : seconds) {
    all_seconds += all;
    idle_seconds += all - busy;
  }
  if (all_seconds == 0) return;  // all was done before
  const int64_t stages = workers.stages(),
                micro_batches = workers.mine().size();
  console::Note(fmt::format(
      "pipeline of {} stages, {} micro-batches: idle for {:.1f} % of the time, "
      "{:.1f} % where all stages take equally long",
      stages, micro_batches, 100 * idle_seconds / all_seconds,
      100.0 * static_cast<double>(stages - 1) /
          static_cast<double>(micro_batches + stages - 1)));
}

void ShowSummary::Begin(TrainingRun& run) {
  console::Note(SummaryOf(run));
}

void InputThreads::Begin(TrainingRun& run) {
  epoch_ = std::floor(run.epoch());
  const int input = run.context().input_threads;
  console::Note(fmt::format(
      "threads: {} to compute, {} for the input", ComputeThreads().threads(),
      input == 0 ? "as many as help" : fmt::format("{}", input)));
}

void InputThreads::AfterStep(TrainingRun& run) {
  const double epoch = std::floor(run.epoch());
  if (epoch <= std::exchange(epoch_, epoch)) return;
  Say(run);
}

void InputThreads::Say(const TrainingRun& run) {
  std::string text;
  for (const StageTime& stage : run.input_stages().Read()) {
    if (!stage.chosen) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", stage.threads,
                        stage.name);
  }
  if (text.empty() || text == said_) return;
  console::Note("input threads that were chosen: " + text);
  said_ = text;
}

bool Progress::Measures(const TrainingRun& run, int64_t step) const {
  return run.Passes(step, every_) ||
         (run.knows_total_steps() && step >= run.total_steps());
}

std::string Progress::Line(TrainingRun& run) {
  const Rates now = throughput_.Since(run);
  if (now.examples_per_second > 0) rates_ = now;
  // The last step may go beyond the last epoch's end.
  const double epochs = run.context().epochs;
  const bool steps_known = run.has_last_step();
  std::string line =
      steps_known
          ? fmt::format("epoch {:.2f}/{:g}, step {}/{}",
                        std::min(run.epoch(), epochs), epochs, run.step(),
                        run.total_steps())
          : fmt::format("epoch {:g}/{:g}, step {}",
                        std::min(run.epoch() + 1, epochs), epochs, run.step());
  const Measurement& measured = run.measurement();
  if (measured.step > 0) {
    line +=
        fmt::format(", batch {}: loss {:.4f}", measured.step, measured.loss);
    if (!measured.metrics.empty()) line += ", " + Describe(measured.metrics);
    if (measured.loss_scale) {
      line += fmt::format(", loss scale {:g}", *measured.loss_scale);
    }
  }
  line += ", " + Speed(rates_, run.workers().size());
  if (steps_known) {
    const double seconds_per_step =
        run.examples() == 0
            ? 0
            : run.training_seconds() * static_cast<double>(run.batch_size()) /
                  static_cast<double>(run.examples());
    const auto left = static_cast<double>(run.total_steps() - run.step());
    line +=
        fmt::format(", {} left", console::Duration(left * seconds_per_step));
  }
  if (rates_.input_wait >= kNotableWait) {
    line += fmt::format(", {:.0f} % of the time waiting for input",
                        100 * rates_.input_wait);
    if (!rates_.input_stage.empty()) {
      line += fmt::format(", whose slowest stage is {}", rates_.input_stage);
    }
  }
  line += WaitForOthers(rates_);
  if (!rates_.staleness.empty()) {
    line +=
        fmt::format(", gradients {:.1f} updates old, at most {}",
                    MeanOf(rates_.staleness), rates_.staleness.rbegin()->first);
  }
  if (!run.dropped().empty()) {
    line += fmt::format(", dropped of each {}", fmt::join(run.dropped(), ", "));
  }
  return line;
}

void Progress::AfterStep(TrainingRun& run) {
  if (console::IsTerminal()) {
    const Clock::time_point now = Clock::now();
    if (now - shown_ < console::kStatusRenewal) return;
    shown_ = now;
    console::SetStatus(Line(run));
  } else if (Measures(run, run.step())) {
    console::Note(Line(run));
  }
}

void Progress::AfterEvaluation(TrainingRun& run, const Evaluation& evaluation) {
  console::Note(fmt::format("epoch {:.2f}, step {}: {} {} ({} examples, {})",
                            run.epoch(), run.step(), evaluation.set,
                            Describe(evaluation.values),
                            WithThousands(evaluation.examples),
                            console::Duration(evaluation.seconds)));
}

void Progress::End(TrainingRun& /*run*/) {
  console::ClearStatus();
}

}  // namespace sluice
