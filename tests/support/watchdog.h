// Ends the program where something takes too long: a test that hangs is a
// deadlock, and says so, and where.
#ifndef SLUICE_TESTS_SUPPORT_WATCHDOG_H_
#define SLUICE_TESTS_SUPPORT_WATCHDOG_H_

#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::testing {

// While it lives, which is to be less than its limit. Then it prints what it is
// of and the stack of each thread (addr2line -e has the lines), and aborts. A
// timer and signals, no thread, which processes that are forked could not have;
// these have none of its limits.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::milliseconds limit = std::chrono::seconds(60),
                    std::string_view what = "a part of the test")
      : message_(std::string(what) + " hangs: it has taken more than " +
                 std::to_string(limit.count()) + " ms\n") {
    [[maybe_unused]] static const bool handled = Handle();
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = Barks();
    event.sigev_value.sival_ptr = this;
    armed_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(limit);
    itimerspec when{};
    when.it_value.tv_sec = seconds.count();
    when.it_value.tv_nsec = std::chrono::nanoseconds(limit - seconds).count();
    if (armed_) timer_settime(timer_, 0, &when, nullptr);
  }
  ~Watchdog() {
    if (armed_) timer_delete(timer_);
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  static int Barks() { return SIGRTMIN + 3; }
  static int Shows() { return SIGRTMIN + 4; }

  static bool Handle() {
    std::array<void*, 2> frames;
    (void)backtrace(frames.data(), frames.size());  // loads what it needs
    struct sigaction bark {};
    bark.sa_flags = SA_SIGINFO;
    bark.sa_sigaction = [](int, siginfo_t* info, void*) {
      static_cast<const Watchdog*>(info->si_value.sival_ptr)->Bark();
    };
    struct sigaction show {};
    show.sa_handler = [](int) { ShowStack(); };
    return sigaction(Barks(), &bark, nullptr) == 0 &&
           sigaction(Shows(), &show, nullptr) == 0;
  }

  // Handlers, in which nothing may be allocated.
  static void Print(std::string_view text) {
    (void)!write(STDERR_FILENO, text.data(), text.size());
  }
  static void ShowStack() {
    std::array<void*, 64> frames;
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()),
                         STDERR_FILENO);
    shown_.store(true);
  }
  void Bark() const {
    static std::atomic<bool> barked{false};
    if (barked.exchange(true)) return;  // another has
    // Where a stack is shown of who has what that needs.
    std::signal(SIGALRM, SIG_DFL);
    alarm(20);
    Print(message_);
    EachThread([](pid_t thread) {
      Print("a thread:\n");
      shown_.store(false);
      if (thread == static_cast<pid_t>(syscall(SYS_gettid))) return ShowStack();
      syscall(SYS_tgkill, getpid(), thread, Shows());
      for (int i = 0; i < 50 && !shown_.load(); ++i) usleep(10'000);
    });
    std::abort();
  }
  template <typename Fn>
  static void EachThread(Fn fn) {
    const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    alignas(8) std::array<char, 4096> entries;
    while (true) {
      const long bytes =
          syscall(SYS_getdents64, folder, entries.data(), entries.size());
      if (bytes <= 0) return;
      for (long at = 0; at < bytes;) {
        // struct linux_dirent64: inode, offset, length, type, name.
        uint16_t length = 0;
        std::memcpy(&length, entries.data() + at + 16, sizeof length);
        const char* const name = entries.data() + at + 19;
        if (*name != '.') fn(static_cast<pid_t>(std::atoi(name)));
        at += length;
      }
    }
  }

  inline static std::atomic<bool> shown_{false};
  const std::string message_;
  timer_t timer_{};
  bool armed_ = false;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_WATCHDOG_H_
