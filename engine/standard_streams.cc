#include "engine/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace sluice {

void OpenStandardStreams(bool usable) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    const int contrary = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    // The lowest that is free: those below are taken by now.
    if (open("/dev/null", usable ? O_RDWR : contrary) < 0) return;
  }
}

}  // namespace sluice
