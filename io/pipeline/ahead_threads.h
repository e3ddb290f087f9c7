// Threads that work ahead of who reads a stream. Internal to io.
#ifndef SLUICE_IO_PIPELINE_AHEAD_THREADS_H_
#define SLUICE_IO_PIPELINE_AHEAD_THREADS_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/trace.h"
#include "engine/thread_annotations.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/map_threads.h"
#include "io/pipeline/stage.h"

namespace sluice {

// Seconds since *since_ns, which becomes now.
inline double SecondsSince(int64_t* since_ns) {
  const int64_t now = SteadyNowNs();
  return 1e-9 * static_cast<double>(now - std::exchange(*since_ns, now));
}

// The base of streams that are computed on several threads. One by one these
// take pieces of the stream's work. They start with the first element that is
// asked for, or when `threads` says that more are wanted, and end when the
// stream is moved or destroyed, for which it must call StopThreads.
class AheadThreads {
 public:
  AheadThreads(const AheadThreads&) = delete;
  AheadThreads& operator=(const AheadThreads&) = delete;

 protected:
  // The stream's input was opened with `opening`.
  AheadThreads(MapThreads threads, const Opening& opening)
      : bytes_(opening.ahead),
        threads_(std::move(threads)),
        stop_input_(opening.stop),
        stage_(opening.stage),
        wanted_(threads_.begin) {}
  ~AheadThreads() = default;

  // A piece of work, which is then done without the lock and throws nothing;
  // null where there is none now.
  using Work = std::function<void()>;
  virtual Work TakeWork() REQUIRES(mutex_) = 0;

  // The following are for the thread that reads the stream.
  bool running() const { return !running_.empty(); }
  Status StartThreads();
  void StopThreads();
  // When a window is full: as many threads from now on as it calls for. Windows
  // double from the first size, so that the first batches come soon, to a
  // number of whole batches: between two of them the reader may pause.
  void Adapt(int64_t batch);
  // Waits until `ready()`, and measures that for the window.
  template <typename Ready>
  void WaitUntil(const Ready& ready) REQUIRES(mutex_) {
    if (ready()) return;
    const Waiting waiting;
    int64_t begin_ns = timed() ? SteadyNowNs() : 0;
    while (!ready()) changed_.Wait(mutex_);
    if (timed()) window_.waited += SecondsSince(&begin_ns);
  }

  // Whether windows are looked at, so that times are to be told.
  bool timed() const { return threads_.adapt != nullptr; }
  Stage* stage() const { return stage_; }

  Mutex mutex_;
  CondVar changed_;
  // Threads whose number is below take work.
  int wanted() const REQUIRES(mutex_) { return wanted_; }
  // Elements, `mapping` and `reading` are told by the stream.
  MapWindow window_ GUARDED_BY(mutex_);
  AheadBytes bytes_ GUARDED_BY(mutex_);           // of elements
  bool no_more_work_ GUARDED_BY(mutex_) = false;  // so that threads may end
  bool stop_ GUARDED_BY(mutex_) = false;

 private:
  static constexpr int64_t kFirstWindow = 8;
  static constexpr int64_t kLeastWindow = 64;

  void AddThreads();
  void Run(int number);

  const MapThreads threads_;
  const StopFlagPtr stop_input_;
  Stage* const stage_;
  std::vector<std::thread> running_;
  // The window under way.
  int64_t window_size_ = kFirstWindow;
  int64_t window_begin_ns_ = 0;

  CondVar more_wanted_;  // for the threads that are not now
  int wanted_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_AHEAD_THREADS_H_
