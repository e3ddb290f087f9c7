#include "models/train/meetings.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "dist/servers/pace.h"
#include "dist/servers/server.h"
#include "engine/status.h"
#include "graph/session/cluster.h"

namespace sluice {

bool Meetings::Now(bool wants) {
  // Short beside a step, and little work for the server.
  constexpr std::chrono::microseconds kFirst(100), kLongest(5000);
  const std::string call = dist::TextOf(dist::PaceCall{
      workers_.size(), *servers_.lead, {workers_.rank(), steps_, wants}});
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
