// Writing to connections that the other side has closed.
#ifndef SLUICE_IO_REMOTE_HTTP_NO_CLOSED_PIPE_H_
#define SLUICE_IO_REMOTE_HTTP_NO_CLOSED_PIPE_H_

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace sluice::remote {

// While it lives, this thread gets no SIGPIPE, which OpenSSL may cause where
// libcurl does not. Other threads, and what the process does at the signal, are
// left alone.
class NoClosedPipe {
 public:
  NoClosedPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoClosedPipe() {
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoClosedPipe(const NoClosedPipe&) = delete;
  NoClosedPipe& operator=(const NoClosedPipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_NO_CLOSED_PIPE_H_
