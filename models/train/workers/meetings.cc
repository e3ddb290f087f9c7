#include "models/train/workers/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "dist/membership/rank_name.h"
#include "dist/servers/pace.h"
#include "dist/servers/server.h"
#include "engine/device.h"
#include "engine/status.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"

namespace sluice {

void TrainingServers::AddTo(SessionOptions* session) const {
  std::vector<std::string>& all = session->devices;
  all.insert(all.end(), devices.begin(), devices.end());
  for (std::string& host : HostsOf(devices)) {
    const bool there = std::find(all.begin(), all.end(), host) != all.end();
    if (!there) all.push_back(std::move(host));
  }
  session->cluster = cluster;
}

void AwaitServers(const TrainingServers& servers, const StopToken* stop,
                  Reporter* reporter) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::seconds;
  constexpr std::chrono::milliseconds kAgain(50);
  const Clock::time_point begin = Clock::now();
  Clock::time_point note = begin + servers.stall_note;
  for (size_t i = 0; i < servers.devices.size();) {
    const std::string name = dist::ServerName(static_cast<int>(i));
    const Status there = servers.cluster->Renew(name);
    if (there.ok()) {
      ++i;
      continue;
    }
    const auto gone = [&](Clock::time_point now) {
      return fmt::format(
          "{} has been gone for {} s: {}", name,
          std::chrono::duration_cast<seconds>(now - begin).count(),
          there.message());
    };
    const Clock::time_point now = Clock::now();
    const bool told = stop != nullptr && !stop->Reason().empty();
    if (told || now - begin >= servers.patience) {
      throw Error(Code::kUnavailable, gone(now));
    }
    if (now >= note && reporter != nullptr) {
      reporter->Note(gone(now));
      note += servers.stall_note;
    }
    std::this_thread::sleep_for(kAgain);
  }
}

std::string AskFirstServer(
    const Workers& workers, const TrainingServers& servers,
    const std::string& question,
    const std::function<std::optional<std::string>(const std::string& answer)>&
        waits) {
  using Clock = std::chrono::steady_clock;
  // Short beside a step, and little work for the server.
  constexpr std::chrono::microseconds kFirst(100), kLongest(5000);
  const Clock::time_point begin = Clock::now();
  Clock::time_point note = begin + servers.stall_note;
  for (auto wait = kFirst;; wait = std::min(2 * wait, kLongest)) {
    // Who is gone is not asked for anything, and would be waited for.
    workers.Check();
    std::string answer =
        servers.cluster->Ask(dist::ServerName(0), question).ValueOrThrow();
    const std::optional<std::string> who = waits(answer);
    if (!who) return answer;
    if (const Clock::time_point now = Clock::now(); now >= note) {
      note += servers.stall_note;
      if (!who->empty() && servers.reporter != nullptr) {
        servers.reporter->NoteOfAny(fmt::format(
            "for {:.0f} s {}",
            std::chrono::duration<double>(now - begin).count(), *who));
      }
    }
    std::this_thread::sleep_for(wait);
  }
}

bool Meetings::Now(bool wants, const WorkerTimes& times) {
  const std::string call =
      dist::TextOf(dist::PaceCall{era_,
                                  workers_.size(),
                                  servers_.lead.value_or(dist::Pace::kAnyLead),
                                  {workers_.rank(), steps_, wants, times}});
  using Reply = dist::Pace::Reply;
  dist::Pace::Answer answer;
  AskFirstServer(
      workers_, servers_, call,
      [&](const std::string& said) -> std::optional<std::string> {
        answer = dist::ParseAnswer(said).ValueOrThrow();
        if (answer.reply != Reply::kWait) return std::nullopt;
        const bool first = answer.waiting[0] == workers_.rank();
        if (!first) return "";
        return fmt::format(
            "{} of {} {} waited for rank {}, which has done the fewest steps",
            dist::RankNames(answer.waiting), workers_.size(),
            answer.waiting.size() == 1 ? "has" : "have", answer.slowest);
      });
  times_ = std::move(answer.times);
  if (answer.reply == Reply::kMeet) return true;
  ++steps_;
  return false;
}

}  // namespace sluice
