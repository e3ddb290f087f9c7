// Ctrl-C and SIGTERM: the first is noted, so that training can save and end;
// the second ends the process at once.
#ifndef SLUICE_MODELS_CLI_INTERRUPT_H_
#define SLUICE_MODELS_CLI_INTERRUPT_H_

#include <string>

#include "models/train/reporter.h"

namespace sluice {

// Notes SIGINT and SIGTERM from now on. For the whole process, so programs
// call it, libraries do not.
void NoteInterrupts();

// The signal that was noted, or 0. Thread-safe.
int InterruptSignal();

// "SIGINT", "SIGTERM"
const char* InterruptName(int signal);

// Ends training once a signal is noted.
class InterruptToken : public StopToken {
 public:
  std::string Reason() const override;
};

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_INTERRUPT_H_
