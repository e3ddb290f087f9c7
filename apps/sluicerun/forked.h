// A process of this program's that became another, or a relay of it.
#ifndef SLUICE_APPS_SLUICERUN_FORKED_H_
#define SLUICE_APPS_SLUICERUN_FORKED_H_

#include <sys/types.h>

#include <functional>

#include "dist/net/descriptor.h"

namespace sluice::launcher {

struct Started {
  pid_t pid = -1;  // leader of a process group of its own
  int error = 0;   // errno where it could not be started; no pid then
  dist::Descriptor out, err;  // its stdout and stderr, to read without waiting
  dist::Descriptor roster;    // of an elastic job: our end of its socket
};

// Forks. The new process calls child(out, err), which must not return, with
// what its output is to be written to; programs do not inherit the two.
Started Forked(const std::function<void(int out, int err)>& child);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_FORKED_H_
