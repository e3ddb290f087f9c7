#include "models/train/workers/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "dist/servers/pace.h"
#include "dist/servers/server.h"
#include "engine/status.h"
#include "graph/session/cluster.h"

namespace sluice {

void AwaitServers(const TrainingServers& servers, const StopToken* stop,
                  Reporter* reporter) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::seconds;
  constexpr std::chrono::milliseconds kAgain(50);
  constexpr seconds kNoteEvery(10);
  const Clock::time_point begin = Clock::now();
  Clock::time_point note = begin + kNoteEvery;
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
      note += kNoteEvery;
    }
    std::this_thread::sleep_for(kAgain);
  }
}

bool Meetings::Now(bool wants) {
  // Short beside a step, and little work for the server.
  constexpr std::chrono::microseconds kFirst(100), kLongest(5000);
  const std::string call = dist::TextOf(dist::PaceCall{
      era_, workers_.size(), *servers_.lead, {workers_.rank(), steps_, wants}});
  for (auto wait = kFirst;; wait = std::min(2 * wait, kLongest)) {
    // Who is gone is not asked for anything, and would be waited for.
    workers_.Check();
    const std::string said =
        servers_.cluster->Ask(dist::ServerName(0), call).ValueOrThrow();
    switch (dist::ParseAnswer(said).ValueOrThrow()) {
      case dist::Pace::Answer::kMeet:
        return true;
      case dist::Pace::Answer::kGo:
        ++steps_;
        return false;
      case dist::Pace::Answer::kWait:
        std::this_thread::sleep_for(wait);
    }
  }
}

}  // namespace sluice
