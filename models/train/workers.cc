#include "models/train/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/status.h"

namespace sluice {
namespace {

// What a worker says of itself, as it travels.
struct Say {
  static constexpr size_t kLongest = 118;
  bool measures = false;
  bool token = false;          // the reason is its token's
  char reason[kLongest] = {};  // why to end; ends with a zero
};

}  // namespace

std::string Workers::Name(int rank) const {
  return fmt::format("rank {} of {}", rank, size());
}

int64_t Workers::ShareOf(int64_t n) const {
  return n * (rank() + 1) / size() - n * rank() / size();
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
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  const auto length = static_cast<int64_t>(mine.size());
  Gather(fmt::format("length of {}", what), &length, sizeof(length),
         lengths.data());
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded(mine);
  padded.resize(static_cast<size_t>(longest));
  std::string all(static_cast<size_t>(longest * size()), '\0');
  Gather(what, padded.data(), longest, all.data());
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < size(); ++rank) {
    texts.push_back(all.substr(static_cast<size_t>(rank * longest),
                               static_cast<size_t>(lengths[rank])));
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
                               MetricsOverSet mine) const {
  if (!several()) return mine;
  const std::vector<double> numbers = mine.State();
  const std::vector<std::string> states =
      Gather("metrics", {reinterpret_cast<const char*>(numbers.data()),
                         numbers.size() * sizeof(double)});
  MetricsOverSet merged(metrics);
  for (const std::string& bytes : states) {
    std::vector<double> state(bytes.size() / sizeof(double));
    std::memcpy(state.data(), bytes.data(), state.size() * sizeof(double));
    merged.Merge(state);
  }
  return merged;
}

void Workers::TakeFromFirst(std::string_view what, void* data,
                            int64_t bytes) const {
  if (!several()) return;
  ThrowIfError(collective_->Broadcast(what, data, bytes, 0));
}

void Workers::TakeFromFirst(std::string_view what, std::string* text) const {
  if (!several()) return;
  auto length = static_cast<int64_t>(text->size());
  TakeFromFirst(fmt::format("length of {}", what), &length, sizeof(length));
  text->resize(static_cast<size_t>(length));
  TakeFromFirst(what, text->data(), length);
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

Agreement::Decision Agreement::Decide(const std::string& stop,
                                      bool measures) const {
  if (!agreed_.empty()) return {agreed_, false};
  const std::string token = mine_ == nullptr ? "" : mine_->Reason();
  if (!workers_.several()) {
    agreed_ = token;
    return {token.empty() ? stop : token, measures};
  }
  Say say;
  say.measures = measures;
  say.token = !token.empty();
  (say.token ? token : stop).copy(say.reason, Say::kLongest - 1);
  std::vector<Say> all(static_cast<size_t>(workers_.size()));
  workers_.Gather("decision", &say, sizeof(say), all.data());
  Decision decision = {"", all[0].measures};
  for (int rank = 0; rank < workers_.size(); ++rank) {
    all[rank].reason[Say::kLongest - 1] = '\0';
    std::string reason = all[rank].reason;
    if (reason.empty()) continue;
    if (rank > 0) reason = fmt::format("{}: {}", workers_.Name(rank), reason);
    if (decision.stop.empty()) decision.stop = reason;
    if (agreed_.empty() && all[rank].token) agreed_ = reason;
  }
  return decision;
}

}  // namespace sluice
