#include "models/cli/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <utility>

#include "engine/text/thousands.h"
#include "engine/thread_annotations.h"

namespace sluice::console {
namespace {

// Carriage return and "erase to the end of the line" (ECMA-48).
constexpr std::string_view kErase = "\r\x1b[K";

Mutex mutex;
bool status_shown GUARDED_BY(mutex) = false;
bool muted GUARDED_BY(mutex) = false;
int output_error GUARDED_BY(mutex) = 0;

void Write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

bool IsTerminal() {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  return terminal;
}

namespace {

void WriteNote(std::string_view line) REQUIRES(mutex) {
  Write(fmt::format("{}{}\n", status_shown ? kErase : "", line));
  status_shown = false;
}

}  // namespace

void Note(std::string_view line) {
  MutexLock lock(mutex);
  if (!muted) WriteNote(line);
}

void NoteError(std::string_view line) {
  MutexLock lock(mutex);
  WriteNote(line);
}

void Mute(bool is_muted) {
  MutexLock lock(mutex);
  muted = is_muted;
}

void SetStatus(std::string_view line) {
  if (!IsTerminal()) return;
  // A line that wraps could not be erased.
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    line = line.substr(0, size.ws_col - 1);
  }
  MutexLock lock(mutex);
  if (muted) return;
  Write(fmt::format("{}{}", kErase, line));
  status_shown = true;
}

void ClearStatus() {
  MutexLock lock(mutex);
  if (status_shown) Write(kErase);
  status_shown = false;
}

void Print(std::string_view line) {
  int failed = 0;
  {
    MutexLock lock(mutex);
    if (output_error == EPIPE) return;
    std::clearerr(stdout);
    const bool written =
        std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
        std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
    if (written) return;
    if (errno != output_error) failed = errno;
    output_error = errno;
  }
  if (failed == EPIPE) {
    NoteError("nobody reads stdout any more: going on without");
  } else if (failed != 0) {
    NoteError("stdout: " + std::generic_category().message(failed));
  }
}

int OutputError() {
  MutexLock lock(mutex);
  return output_error;
}

void Reporter::Note(std::string_view line) {
  console::Note(line);
}

void Reporter::NoteOfAny(std::string_view line) {
  console::NoteError(line);
}

void Reporter::Evaluating(int64_t done, int64_t all) {
  const Clock::time_point now = Clock::now();
  const bool known = all >= 0;
  if (!std::exchange(evaluating_, !known || done < all)) shown_ = now;
  const Clock::duration interval = IsTerminal() ? kStatusRenewal : interval_;
  // What is shown at its end is its result.
  if (!evaluating_ || now - shown_ < interval) return;
  shown_ = now;
  const std::string line =
      fmt::format("evaluating: {}{} examples", WithThousands(done),
                  known ? " of " + WithThousands(all) : "");
  if (IsTerminal()) {
    SetStatus(line);
  } else {
    console::Note(line);
  }
}

std::string Duration(double seconds) {
  const long long whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace sluice::console
