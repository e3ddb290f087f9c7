// The launcher's part on another host: one rank, from its start to its end.
#ifndef SLUICE_APPS_SLUICERUN_AGENT_H_
#define SLUICE_APPS_SLUICERUN_AGENT_H_

namespace sluice::launcher {

// Reads a plan from standard input and runs its rank; then both ways are words
// (channel.h): what the rank prints and how it ends, what it is to hear.
// Where they end, or the relay is silent for 20 s, the launcher or the way to
// it is gone: the rank gets SIGTERM, and SIGKILL when the plan's time is up, or
// at once where it had been told to end before. The exit code is the rank's, or
// 128 + the signal that ended it. Throws Error.
int RunAgent();

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_AGENT_H_
