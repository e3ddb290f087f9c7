#include "io/pipeline/stage_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "io/pipeline/stage.h"

namespace sluice {
namespace {

// Shorter ones cannot be seen in a trace, and there may be very many.
constexpr int64_t kLeastPieceNs = 1000;

}  // namespace

void Stage::Spent(int64_t begin_ns, int64_t end_ns) {
  nanoseconds_.fetch_add(end_ns - begin_ns, std::memory_order_relaxed);
  if (!times_.tracing() || end_ns - begin_ns < kLeastPieceNs) return;
  MutexLock lock(mutex_);
  pieces_.push_back({std::this_thread::get_id(), begin_ns, end_ns});
}

StageTime Stage::Read() const {
  return {.name = name_,
          .elements = elements_.load(std::memory_order_relaxed),
          .seconds = 1e-9 * static_cast<double>(
                                nanoseconds_.load(std::memory_order_relaxed)),
          .threads = threads_.load(std::memory_order_relaxed),
          .chosen = chosen_.load(std::memory_order_relaxed)};
}

std::vector<Stage::Piece> Stage::TakePieces() {
  MutexLock lock(mutex_);
  return std::exchange(pieces_, {});
}

StageTimes::StageTimes() = default;
StageTimes::~StageTimes() = default;

Stage* StageTimes::Find(const Stage* reader, int input, std::string_view name) {
  MutexLock lock(mutex_);
  for (const auto& stage : stages_) {
    if (stage->reader() == reader && stage->input() == input &&
        stage->name() == name) {
      return stage.get();
    }
  }
  return stages_
      .emplace_back(
          std::make_unique<Stage>(*this, reader, input, std::string(name)))
      .get();
}

// Each behind all that it reads.
std::vector<StageTimes::Named> StageTimes::InOrder() const {
  std::multimap<const Stage*, Stage*> inputs;  // in the order they were found
  for (const auto& stage : stages_) {
    inputs.emplace(stage->reader(), stage.get());
  }
  std::vector<Named> order;
  std::map<std::string, int> of_that_name;
  const std::function<void(const Stage*)> add_inputs = [&](const Stage* of) {
    const auto [first, last] = inputs.equal_range(of);
    for (auto input = first; input != last; ++input) {
      add_inputs(input->second);
      const std::string& name = input->second->name();
      const int number = ++of_that_name[name];
      order.push_back(
          {input->second,
           number == 1 ? name : fmt::format("{} {}", name, number)});
    }
  };
  add_inputs(nullptr);
  return order;
}

std::vector<StageTime> StageTimes::Read() const {
  MutexLock lock(mutex_);
  std::vector<StageTime> times;
  for (const auto& [stage, name] : InOrder()) {
    times.push_back(stage->Read());
    times.back().name = name;
  }
  return times;
}

std::vector<StageSpan> StageTimes::TakeSpans() {
  MutexLock lock(mutex_);
  std::vector<StageSpan> spans;
  for (const auto& [stage, name] : InOrder()) {
    std::map<std::thread::id, int> threads;
    for (const Stage::Piece& piece : stage->TakePieces()) {
      const int thread =
          threads.emplace(piece.thread, static_cast<int>(threads.size()))
              .first->second;
      spans.push_back({name, thread, piece.begin_ns, piece.end_ns});
    }
  }
  return spans;
}

std::string BusiestStage(std::span<const StageTime> before,
                         std::span<const StageTime> now) {
  std::string busiest;
  double most = 0;
  for (const StageTime& stage : now) {
    const auto same = [&](const StageTime& other) {
      return other.name == stage.name;
    };
    const auto was = std::find_if(before.begin(), before.end(), same);
    const double seconds =
        stage.seconds - (was == before.end() ? 0 : was->seconds);
    const double on_each = seconds / std::max(1, stage.threads);
    if (on_each <= most) continue;
    most = on_each;
    busiest = stage.name;
  }
  return busiest;
}

}  // namespace sluice
