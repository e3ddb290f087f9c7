// Chooses how many threads a map runs on. Internal to io.
#ifndef SLUICE_IO_PIPELINE_MAP_THREADS_H_
#define SLUICE_IO_PIPELINE_MAP_THREADS_H_

#include <cstdint>
#include <functional>
#include <optional>

namespace sluice {

// The times, in seconds, that some consecutive elements took.
struct MapWindow {
  int64_t elements = 0;
  double seconds = 0;  // from the last one before them to the last of them
  double waited = 0;   // of these, in which who reads the map waited for it
  double mapping = 0;  // in the map, on all threads together
  double reading = 0;  // in its input, which one thread at a time reads
};

// How many threads to begin with, how many there may be, and how many there are
// to be after a window, a number that is brought to 1 ... most; without
// `adapt`, as many as at the beginning.
struct MapThreads {
  int begin = 1;
  int most = 1;
  std::function<int(const MapWindow&)> adapt = nullptr;

  // From MapOptions::threads and max_threads.
  static MapThreads Of(int threads, int max_threads);
};

// Chooses them from what is measured. Each change is a trial, which is judged
// by the elements per second of the next window: where more threads bring less
// than 5 %, or fewer cost more than 3 %, it is taken back, and not made again
// for a number of windows that doubles with each such failure.
//
// - More, while the reader waits for a tenth of the time or more and the input
//   leaves time: as many as would keep pace with the reader and the input, but
//   at most twice as many as now.
// - Fewer, when two windows in a row say that fewer would keep pace even if
//   elements took a quarter longer: that many, but at least half as many.
class AdaptiveThreads {
 public:
  explicit AdaptiveThreads(int most) : most_(most) {}

  int threads() const { return threads_; }
  // How many threads there are to be after this window, in which threads() were
  // running, but for those that could not be started.
  int Next(const MapWindow& window);

 private:
  // A change that failed is not tried again so soon.
  struct Hold {
    int windows = 0;  // left
    int next = kFirstHold;
    double waited = 0;  // part of the time, when it failed
  };
  struct Trial {
    int before;  // threads
    double rate;
    bool more;
  };

  static constexpr int kFirstHold = 8;
  static constexpr int kMostHold = 64;

  void Judge(double rate, double waited);
  void Try(int threads, double rate);
  // How many threads keep pace, if elements take `times` as long.
  int Needed(const MapWindow& window, double times) const;

  const int most_;
  int threads_ = 1;
  std::optional<Trial> trial_;
  Hold more_, fewer_;
  int fewer_needed_ = 0;  // windows in a row
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_MAP_THREADS_H_
