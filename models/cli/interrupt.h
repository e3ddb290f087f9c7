// Ctrl-C and SIGTERM: the first is noted, so that training can save and end;
// the second ends the process at once.
#ifndef SLUICE_MODELS_CLI_INTERRUPT_H_
#define SLUICE_MODELS_CLI_INTERRUPT_H_

namespace sluice {

// Notes SIGINT and SIGTERM from now on. For the whole process, so programs
// call it, libraries do not.
void NoteInterrupts();

// The signal that was noted, or 0. Thread-safe.
int InterruptSignal();

// "SIGINT", "SIGTERM"
const char* InterruptName(int signal);

}  // namespace sluice

#endif  // SLUICE_MODELS_CLI_INTERRUPT_H_
