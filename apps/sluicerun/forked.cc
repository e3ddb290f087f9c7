#include "apps/sluicerun/forked.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace sluice::launcher {
namespace {

bool SetNonBlocking(const dist::Descriptor& descriptor) {
  return fcntl(descriptor.get(), F_SETFL, O_NONBLOCK) == 0;
}

}  // namespace

Started Forked(const std::function<void(int out, int err)>& child) {
  Started started;
  dist::Pipe out = dist::OpenPipe();
  dist::Pipe err = out.open() ? dist::OpenPipe() : dist::Pipe();
  pid_t pid = -1;
  if (err.open() && SetNonBlocking(out.read) && SetNonBlocking(err.read)) {
    pid = fork();
  }
  if (pid == 0) {
    child(out.write.get(), err.write.get());
    std::abort();
  }
  if (pid < 0) {
    started.error = errno;
    return started;
  }
  setpgid(pid, pid);  // both sides, as either may be first
  started.pid = pid;
  started.out = std::move(out.read);
  started.err = std::move(err.read);
  return started;
}

}  // namespace sluice::launcher
