#include "models/train/workers/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "dist/collective/texts.h"
#include "engine/status.h"
#include "models/nn/metric_states.h"
#include "models/train/workers/pipeline_stages.h"

namespace sluice {
namespace {

// What a worker says of itself, as it travels.
struct Say {
  static constexpr size_t kLongest = 116;
  uint8_t measures = 0;
  uint8_t meets = 0;
  uint8_t called = 0;
  uint8_t token = 0;           // the reason is its token's
  char reason[kLongest] = {};  // why to end; ends with a zero
  WorkerTimes times;
};

// Bytes of a text that comes in pieces.
constexpr int64_t kMostLongText = int64_t{1} << 34;

// The states of a worker's leaves as they travel: one behind another, each as
// the number of its numbers and these.
std::string BytesOf(const std::vector<MetricsOverSet>& leaves) {
  std::string bytes;
  const auto add = [&](std::span<const double> numbers) {
    bytes.append(reinterpret_cast<const char*>(numbers.data()),
                 numbers.size_bytes());
  };
  for (const MetricsOverSet& leaf : leaves) {
    const std::vector<double> state = leaf.State();
    const auto count = static_cast<double>(state.size());
    add({&count, 1});
    add(state);
  }
  return bytes;
}

// Of bytes that another worker has sent, which may be any.
bool FlagOf(uint8_t byte, int rank) {
  if (byte <= 1) return byte == 1;
  throw Error(
      Code::kDataLoss,
      fmt::format("the decision of rank {} has a flag of {}", rank, byte));
}

}  // namespace

Workers::Workers(Collective* collective, int64_t virtual_workers,
                 size_t devices, int stages)
    : collective_(collective),
      virtual_workers_(virtual_workers),
      devices_(static_cast<int64_t>(devices)),
      stages_(stages) {
  if (stages < 1 || size() % stages != 0) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{} stages do not go into {} processes", stages, size()));
  }
  if (stages > 1 && (virtual_workers == 0 || elastic())) {
    throw Error(Code::kInvalidArgument,
                "stages are for virtual workers, the micro-batches, and not "
                "for elastic jobs");
  }
  if (devices > 0 && (several() || elastic())) {
    throw Error(Code::kInvalidArgument,
                fmt::format("mirrored devices are of one process that trains "
                            "by itself, there are {}",
                            size()));
  }
  if (virtual_workers == 0) return;
  if (virtual_workers < 0 ||
      !std::has_single_bit(static_cast<uint64_t>(virtual_workers))) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} virtual workers: wanted a power of two",
                            virtual_workers));
  }
  if (virtual_workers < size()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} virtual workers for {} processes: each must "
                            "have one at least",
                            virtual_workers, size()));
  }
  if (virtual_workers < devices_) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} virtual workers for {} devices: each must have "
                            "one at least",
                            virtual_workers, devices));
  }
}

std::string Workers::Name(int rank) const {
  return fmt::format("rank {} of {}", rank, size());
}

bool Workers::AreGone(const Error& error) const {
  const Code code = error.code();
  const bool of_others = code == Code::kUnavailable ||
                         code == Code::kDeadlineExceeded ||
                         code == Code::kCancelled;
  return of_others && elastic() && !collective_->Check().ok();
}

// A part has a clock of its own.
double Workers::seconds() const {
  if (!several()) return 0;
  const double all = collective_->seconds();
  if (stages_ == 1 || replicas() == 1) return all;
  return all + collective_->Subgroup(kStageGroup)->seconds();
}

RunContext Workers::WithRank(RunContext run) const {
  run.elastic = elastic();
  if (leaves() == 1) return run;
  run.rank = mine().begin;
  run.size = leaves();
  run.own = mine().size();
  return run;
}

std::vector<Dataset> Workers::SharesOf(const Dataset& whole) const {
  std::vector<Dataset> shares;
  for (int64_t leaf = mine().begin; leaf < mine().end; ++leaf) {
    shares.push_back(whole.Share(leaf, leaves()));
  }
  return shares;
}

int64_t Workers::ShareOf(int64_t n) const {
  return LeavesOf(n, mine().begin, leaves()).size();
}

void Workers::Gather(std::string_view what, const void* mine, int64_t each,
                     void* all) const {
  if (several()) {
    ThrowIfError(collective_->AllGather(what, mine, each, all));
  } else if (each > 0) {
    std::memcpy(all, mine, static_cast<size_t>(each));
  }
}

std::vector<std::string> Workers::Gather(std::string_view what,
                                         std::string_view mine) const {
  if (!several()) return {std::string(mine)};
  return dist::GatherTexts(*collective_, what, mine).ValueOrThrow();
}

std::vector<std::string> Workers::GatherOnFirst(std::string_view what,
                                                std::string_view mine,
                                                int64_t at_once) const {
  std::vector<std::string> texts;
  if (leads()) texts.emplace_back(mine);
  for (int from = 1; from < size(); ++from) {
    auto length = static_cast<int64_t>(mine.size());
    TakeFrom(from, fmt::format("length of {}", what), &length, sizeof(length));
    ThrowIfError(dist::CheckTextLength(what, from, length, kMostLongText));
    std::string text, piece;
    for (int64_t begin = 0; begin < length; begin += at_once) {
      piece.resize(static_cast<size_t>(std::min(at_once, length - begin)));
      if (from == rank()) {
        mine.copy(piece.data(), piece.size(), static_cast<size_t>(begin));
      }
      TakeFrom(from, what, piece.data(), static_cast<int64_t>(piece.size()));
      if (leads()) text += piece;
    }
    if (leads()) texts.push_back(std::move(text));
  }
  return texts;
}

void Workers::RequireSame(std::string_view what, std::string_view text) const {
  const std::vector<std::string> texts = Gather(what, text);
  for (int rank = 1; rank < size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto [first, other] =
        std::mismatch(texts[0].begin(), texts[0].end(), texts[rank].begin(),
                      texts[rank].end());
    const auto at = static_cast<size_t>(first - texts[0].begin());
    const auto excerpt = [&](const std::string& whole) {
      const size_t begin = at < 40 ? 0 : at - 40;
      return whole.substr(begin, 120);
    };
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("the {} of {} is another than that of {}: '{}', "
                    "not '{}'; all workers are started alike, and batches "
                    "are shared out afterwards",
                    what, Name(rank), Name(0), excerpt(texts[rank]),
                    excerpt(texts[0])));
  }
}

MetricsOverSet Workers::Merged(const NamedMetrics& metrics,
                               std::vector<MetricsOverSet> mine) const {
  if (!as_several()) return std::move(mine[0]);
  std::vector<std::string> states = {BytesOf(mine)};
  if (several()) {
    states =
        dist::GatherTexts(*collective_, "metrics", states[0], kMostLongText)
            .ValueOrThrow();
  }
  MetricsOverSet merged(metrics);
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const std::string bytes = std::move(states[rank]);
    if (bytes.empty()) continue;  // of who has no leaves
    if (bytes.size() % sizeof(double) != 0) {
      throw Error(Code::kDataLoss,
                  fmt::format("the metrics of rank {} are {} bytes, no numbers "
                              "of {} each",
                              rank, bytes.size(), sizeof(double)));
    }
    std::vector<double> all(bytes.size() / sizeof(double));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(double));
    std::span<const double> rest(all);
    while (!rest.empty()) {
      const auto count = static_cast<size_t>(CountOf(
          "metrics of a leaf", rest[0], static_cast<int64_t>(rest.size()) - 1));
      merged.Merge(rest.subspan(1, count));
      rest = rest.subspan(1 + count);
    }
  }
  return merged;
}

void Workers::RequireMergeable(const NamedMetrics& metrics) const {
  if (as_several()) (void)MetricsOverSet(metrics).State();
}

void Workers::TakeFrom(int rank, std::string_view what, void* data,
                       int64_t bytes) const {
  if (!several()) return;
  ThrowIfError(collective_->Broadcast(what, data, bytes, rank));
}

void Workers::TakeFromFirst(std::string_view what, void* data,
                            int64_t bytes) const {
  TakeFrom(0, what, data, bytes);
}

void Workers::TakeFromFirst(std::string_view what, std::string* text) const {
  if (!several()) return;
  auto length = static_cast<int64_t>(text->size());
  TakeFromFirst(fmt::format("length of {}", what), &length, sizeof(length));
  ThrowIfError(dist::CheckTextLength(what, 0, length));
  text->resize(static_cast<size_t>(length));
  TakeFromFirst(what, text->data(), length);
}

void Workers::SumTree(std::string_view what, std::span<const void* const> sums,
                      Tensor* sum) const {
  if (replicas() > 1) {
    Collective& group =
        stages_ == 1 ? *collective_ : *collective_->Subgroup(kStageGroup);
    ThrowIfError(group.SumTree(what, sum->dtype(), leaves(), sums, sum->raw(),
                               sum->elements()));
  } else if (sums[0] != sum->raw()) {
    std::memcpy(sum->raw(), sums[0], sum->bytes());
  }
}

void Workers::Barrier(std::string_view what) const {
  if (several()) ThrowIfError(collective_->Barrier(what));
}

void TakeFromFirst(const Workers& workers, Checkpoint* checkpoint) {
  if (!workers.several()) return;
  std::string state = PrintTrainingState(checkpoint->state);
  workers.TakeFromFirst("state", &state);
  checkpoint->state = ParseTrainingState(state).ValueOrThrow();
  for (NamedTensor& variable : checkpoint->tensors) {
    workers.TakeFromFirst(variable.name, variable.tensor.raw(),
                          static_cast<int64_t>(variable.tensor.bytes()));
  }
}

std::string Agreement::Reason() const {
  (void)Decide("", false);
  return agreed_;
}

Agreement::Decision Agreement::Decide(const std::string& stop, bool measures,
                                      bool wants,
                                      const WorkerTimes& times) const {
  if (!agreed_.empty()) return {agreed_};
  const std::string token = mine_ == nullptr ? "" : mine_->Reason();
  if (!workers_.several()) {
    agreed_ = token;
    return {token.empty() ? stop : token, measures, wants, workers_.called()};
  }
  Say say;
  say.measures = measures ? 1 : 0;
  say.meets = wants ? 1 : 0;
  say.called = workers_.called() ? 1 : 0;
  say.token = token.empty() ? 0 : 1;
  (token.empty() ? stop : token).copy(say.reason, Say::kLongest - 1);
  say.times = times;
  std::vector<Say> all = workers_.GatherEach("decision", say);
  Decision decision = {"", FlagOf(all[0].measures, 0), FlagOf(all[0].meets, 0),
                       FlagOf(all[0].called, 0)};
  for (int rank = 0; rank < workers_.size(); ++rank) {
    decision.times.push_back(all[rank].times);
    const bool of_token = FlagOf(all[rank].token, rank);
    all[rank].reason[Say::kLongest - 1] = '\0';
    std::string reason = all[rank].reason;
    if (reason.empty()) continue;
    if (rank > 0) reason = fmt::format("{}: {}", workers_.Name(rank), reason);
    if (decision.stop.empty()) decision.stop = reason;
    if (agreed_.empty() && of_token) agreed_ = reason;
  }
  return decision;
}

}  // namespace sluice
