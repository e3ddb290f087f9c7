#include "dist/servers/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/parse_number.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"

namespace sluice::dist {
namespace {

constexpr std::string_view kReplies[] = {"go", "wait", "meet"};

// The fields of WorkerTimes, of one as a number each, of several as a list.
constexpr std::pair<const char*, int64_t WorkerTimes::*> kTimes[] = {
    {"examples", &WorkerTimes::examples},
    {"trained", &WorkerTimes::trained},
    {"waited", &WorkerTimes::waited}};

}  // namespace

Pace::Pace(int workers, int64_t lead)
    : lead_(lead), workers_(static_cast<size_t>(workers)) {}

int64_t Pace::Slowest() const {
  return std::min_element(
             workers_.begin(), workers_.end(),
             [](const Worker& a, const Worker& b) { return a.done < b.done; }) -
         workers_.begin();
}

int64_t Pace::MostBegun() const {
  return std::max_element(
             workers_.begin(), workers_.end(),
             [](const Worker& a, const Worker& b) { return a.begun < b.begun; })
      ->begun;
}

Result<Pace::Answer> Pace::Ask(const Question& question) {
  const auto& [rank, round, to_meet, times] = question;
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
  worker.times = times;
  Answer answer = {.reply = ReplyTo(question)};
  worker.waits = answer.reply == Reply::kWait;
  if (worker.waits) {
    answer.slowest = Slowest();
    for (size_t each = 0; each < workers_.size(); ++each) {
      if (!workers_[each].waits) continue;
      answer.waiting.push_back(static_cast<int64_t>(each));
    }
  } else if (rank == 0) {
    for (const Worker& each : workers_) answer.times.push_back(each.times);
  }
  return answer;
}

Pace::Reply Pace::ReplyTo(const Question& question) {
  const auto& [rank, round, to_meet, times] = question;
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (to_meet && !meeting_) meeting_ = MostBegun();
  if (meeting_ && round == *meeting_) {
    worker.told = true;
    if (std::all_of(workers_.begin(), workers_.end(),
                    [](const Worker& each) { return each.told; })) {
      meeting_.reset();
      for (Worker& each : workers_) each.told = false;
    }
    return Reply::kMeet;
  }
  // The slowest is never kept, so that it comes to a meeting, too.
  const int64_t fewest = workers_[static_cast<size_t>(Slowest())].done;
  if (round - fewest > lead_) return Reply::kWait;
  worker.begun = round + 1;
  return Reply::kGo;
}

Result<int64_t> ParseLead(std::string_view text) {
  if (text == "async") return Pace::kAnyLead;
  constexpr std::string_view kSsp = "ssp:";
  if (text.starts_with(kSsp)) {
    const auto lead = ParseWhole<int64_t>(text.substr(kSsp.size()));
    if (lead && *lead >= 0) return *lead;
  }
  return InvalidArgument(fmt::format(
      "wanted async or ssp:STEPS with a number of steps, got '{}'", text));
}

std::string TextOf(const PaceCall& call) {
  Json json = {{"era", call.era},
               {"workers", call.workers},
               {"lead", call.lead},
               {"rank", call.question.rank},
               {"round", call.question.round},
               {"meet", call.question.to_meet}};
  for (const auto& [name, figure] : kTimes) {
    json[name] = call.question.times.*figure;
  }
  return json.Text();
}

Result<PaceCall> ParsePaceCall(const std::string& text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  PaceCall call;
  SLUICE_ASSIGN_OR_RETURN(call.era, json.Int("era"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, json.Int("workers"));
  SLUICE_ASSIGN_OR_RETURN(call.lead, json.Int("lead"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t rank, json.Int("rank"));
  SLUICE_ASSIGN_OR_RETURN(call.question.round, json.Int("round"));
  SLUICE_ASSIGN_OR_RETURN(call.question.to_meet, json.Bool("meet"));
  for (const auto& [name, figure] : kTimes) {
    SLUICE_ASSIGN_OR_RETURN(call.question.times.*figure, json.Int(name));
  }
  if (workers < 1 || workers > kMostWorkers || call.lead < 0 || rank < 0 ||
      rank >= workers || call.question.round < 0) {
    return InvalidArgument("a question about the pace that makes no sense");
  }
  call.workers = static_cast<int>(workers);
  call.question.rank = static_cast<int>(rank);
  return call;
}

std::string TextOf(const Pace::Answer& answer) {
  Json json = {{"reply", kReplies[static_cast<size_t>(answer.reply)]}};
  if (answer.reply == Pace::Reply::kWait) {
    json["waiting"] = answer.waiting;
    json["slowest"] = answer.slowest;
  }
  for (const auto& [name, figure] : kTimes) {
    for (const WorkerTimes& each : answer.times) json[name].Add(each.*figure);
  }
  return json.Text();
}

Result<Pace::Answer> ParseAnswer(std::string_view text) {
  const Status nonsense = DataLoss("a server answers nonsense about the pace");
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  SLUICE_ASSIGN_OR_RETURN(const std::string reply, json.String("reply"));
  const auto* const found =
      std::find(std::begin(kReplies), std::end(kReplies), reply);
  if (found == std::end(kReplies)) return nonsense;
  Pace::Answer answer = {static_cast<Pace::Reply>(found - kReplies)};
  if (answer.reply == Pace::Reply::kWait) {
    SLUICE_ASSIGN_OR_RETURN(answer.waiting, json.Ints("waiting"));
    SLUICE_ASSIGN_OR_RETURN(answer.slowest, json.Int("slowest"));
    if (answer.waiting.empty()) return nonsense;  // who asks does
  }
  for (const auto& [name, figure] : kTimes) {
    if (!json.Has(name)) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, json.Ints(name));
    if (answer.times.empty()) answer.times.resize(all.size());
    if (answer.times.size() != all.size()) return nonsense;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      answer.times[rank].*figure = all[rank];
    }
  }
  return answer;
}

}  // namespace sluice::dist
