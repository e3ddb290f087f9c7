#include "io/remote/http/outage.h"

#include <fmt/format.h>

#include <ctime>

#include "engine/note.h"

namespace sluice::remote {
namespace {

constexpr std::chrono::seconds kPause{60};

// "09:30:12 UTC"
std::string TimeOfDay(std::time_t time) {
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{:02}:{:02}:{:02} UTC", utc.tm_hour, utc.tm_min,
                     utc.tm_sec);
}

std::time_t Seconds(std::chrono::milliseconds time) {
  return std::chrono::round<std::chrono::seconds>(time).count();
}

}  // namespace

void OutageNotes::Waits(const std::string& server, const Failing& request) {
  const auto now = clock_.Now();
  {
    const MutexLock lock(mutex_);
    const auto [told, is_new] = told_.try_emplace(server);
    Told& last = told->second;
    if (!last.over || (!is_new && now - last.said < kPause)) return;
    last = {.begin = now - request.since, .said = now, .over = false};
  }
  const std::time_t time = clock_.Time();
  Note(fmt::format("{} has failed since {} ({}: {}); it is tried until {}",
                   server, TimeOfDay(time - Seconds(request.since)),
                   request.what, request.reason,
                   TimeOfDay(time + Seconds(request.left))));
}

void OutageNotes::Answers(const std::string& server) {
  std::chrono::steady_clock::time_point begin;
  {
    const MutexLock lock(mutex_);
    const auto told = told_.find(server);
    if (told == told_.end() || told->second.over) return;
    told->second.over = true;
    begin = told->second.begin;
  }
  const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(
      clock_.Now() - begin);
  Note(fmt::format("{} answers again, after {} s", server, Seconds(lasted)));
}

void OutageNotes::Ends(const std::string& server) {
  const MutexLock lock(mutex_);
  const auto told = told_.find(server);
  if (told != told_.end()) told->second.over = true;
}

}  // namespace sluice::remote
