// Lines for people, on stderr: notes that stay and one status line that is
// overwritten in place where stderr is a terminal. And results, on stdout.
#ifndef SLUICE_MODELS_CLI_CONSOLE_H_
#define SLUICE_MODELS_CLI_CONSOLE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/visibility.h"
#include "models/train/workers/reporter.h"

namespace SLUICE_INTERNAL sluice {
namespace console {

// The time between renewals of a status line.
inline constexpr std::chrono::milliseconds kStatusRenewal(200);

// Is stderr a terminal, so that a status line can be overwritten?
bool IsTerminal();

// Prints one line. Thread-safe, as all here.
void Note(std::string_view line);
// Prints one line as Note does, but also after Mute.
void NoteError(std::string_view line);
// Drops notes and status lines from now on, in all but one of several processes
// that would print the same.
void Mute(bool muted = true);

// Replaces the status line. Where stderr is no terminal it does nothing.
void SetStatus(std::string_view line);
void ClearStatus();

// Prints a line of results to stdout, at once. One that cannot be written is
// dropped, which a note and OutputError tell.
void Print(std::string_view line);
// The errno of the last line of results that was dropped; 0: none was.
int OutputError();

// Notes of the trainer's, as Note prints them. Evaluations are shown in the
// status line or, where there is none, as a note every `interval`.
class Reporter : public sluice::Reporter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Reporter(Clock::duration interval = std::chrono::seconds(10))
      : interval_(interval) {}
  void Note(std::string_view line) override;
  void NoteOfAny(std::string_view line) override;
  void Evaluating(int64_t done, int64_t all) override;

 private:
  Clock::duration interval_;
  bool evaluating_ = false;
  Clock::time_point shown_;
};

// "42s", "3m07s", "2h05m"
std::string Duration(double seconds);

}  // namespace console
}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_CONSOLE_H_
