#include "dist/servers/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/text/json.h"
#include "engine/text/json_object.h"

namespace sluice::dist {
namespace {

constexpr std::string_view kAnswers[] = {"go", "wait", "meet"};

}  // namespace

Pace::Pace(int workers, int64_t lead)
    : lead_(lead), workers_(static_cast<size_t>(workers)) {}

int64_t Pace::FewestDone() const {
  return std::min_element(
             workers_.begin(), workers_.end(),
             [](const Worker& a, const Worker& b) { return a.done < b.done; })
      ->done;
}

int64_t Pace::MostBegun() const {
  return std::max_element(
             workers_.begin(), workers_.end(),
             [](const Worker& a, const Worker& b) { return a.begun < b.begun; })
      ->begun;
}

Result<Pace::Answer> Pace::Ask(const Question& question) {
  const auto& [rank, round, to_meet] = question;
  if (rank < 0 || static_cast<size_t>(rank) >= workers_.size()) {
    return InvalidArgument(
        fmt::format("rank {} of {} workers", rank, workers_.size()));
  }
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (round != worker.begun) {
    return InvalidArgument(fmt::format("rank {} asks for round {} after {}",
                                       rank, round, worker.begun));
  }
  worker.done = round;
  if (to_meet && !meeting_) meeting_ = MostBegun();
  if (meeting_ && round == *meeting_) {
    worker.told = true;
    if (std::all_of(workers_.begin(), workers_.end(),
                    [](const Worker& each) { return each.told; })) {
      meeting_.reset();
      for (Worker& each : workers_) each.told = false;
    }
    return Answer::kMeet;
  }
  // The slowest is never kept, so that it comes to a meeting, too.
  if (round - FewestDone() > lead_) return Answer::kWait;
  worker.begun = round + 1;
  return Answer::kGo;
}

Result<int64_t> ParseLead(std::string_view text) {
  if (text == "async") return Pace::kAnyLead;
  constexpr std::string_view kSsp = "ssp:";
  int64_t lead = -1;
  if (text.starts_with(kSsp)) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] =
        std::from_chars(text.data() + kSsp.size(), end, lead);
    if (error != std::errc() || stop != end) lead = -1;
  }
  if (lead >= 0) return lead;
  return InvalidArgument(fmt::format(
      "wanted async or ssp:STEPS with a number of steps, got '{}'", text));
}

std::string TextOf(const PaceCall& call) {
  return Json{{"era", call.era},
              {"workers", call.workers},
              {"lead", call.lead},
              {"rank", call.question.rank},
              {"round", call.question.round},
              {"meet", call.question.to_meet}}
      .Text();
}

Result<PaceCall> ParsePaceCall(const std::string& text) {
  constexpr int64_t kMostWorkers = 1 << 16;
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  PaceCall call;
  SLUICE_ASSIGN_OR_RETURN(call.era, json.Int("era"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, json.Int("workers"));
  SLUICE_ASSIGN_OR_RETURN(call.lead, json.Int("lead"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t rank, json.Int("rank"));
  SLUICE_ASSIGN_OR_RETURN(call.question.round, json.Int("round"));
  SLUICE_ASSIGN_OR_RETURN(call.question.to_meet, json.Bool("meet"));
  if (workers < 1 || workers > kMostWorkers || call.lead < 0 || rank < 0 ||
      rank >= workers || call.question.round < 0) {
    return InvalidArgument("a question about the pace that makes no sense");
  }
  call.workers = static_cast<int>(workers);
  call.question.rank = static_cast<int>(rank);
  return call;
}

std::string TextOf(Pace::Answer answer) {
  return std::string(kAnswers[static_cast<size_t>(answer)]);
}

Result<Pace::Answer> ParseAnswer(std::string_view text) {
  const auto* const found =
      std::find(std::begin(kAnswers), std::end(kAnswers), text);
  if (found == std::end(kAnswers)) {
    return DataLoss("a server answers nonsense about the pace");
  }
  return static_cast<Pace::Answer>(found - std::begin(kAnswers));
}

}  // namespace sluice::dist
