// Ctrl-C, SIGTERM and a terminal that is closed (SIGHUP): the first is noted,
// so that training can save and end; a second (second_signal.h) ends the
// process at once. And output that nobody reads any more.
#ifndef SLUICE_MODELS_CLI_INTERRUPT_H_
#define SLUICE_MODELS_CLI_INTERRUPT_H_

#include <string>
#include <string_view>

#include "models/train/workers/reporter.h"

namespace sluice {

// Notes SIGINT, SIGTERM and SIGHUP from now on, but for those that the process
// was started to ignore (nohup). Of both the first and the second it says on
// stderr what they do; `first` is for the first, one line without its end that
// lives as long as the process; null: nothing. For the whole process, so
// programs call it, libraries do not.
void NoteInterrupts(const char* first);

// Writing to a pipe whose reader has gone is an error, not the process's end:
// for a training that goes on without a listener.
void IgnoreClosedPipes();

// The signal that was noted, or 0. Thread-safe.
int InterruptSignal();

// "SIGINT", "SIGTERM", "SIGHUP"
const char* InterruptName(int signal);
// The signal that a reason of InterruptToken's names, perhaps of another
// process: SIGTERM where it names none.
int InterruptNamed(std::string_view reason);

// Ends training once a signal is noted.
class InterruptToken : public StopToken {
 public:
  std::string Reason() const override;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_INTERRUPT_H_
