// Notes on servers that keep requests waiting.
#ifndef SLUICE_IO_REMOTE_HTTP_OUTAGE_H_
#define SLUICE_IO_REMOTE_HTTP_OUTAGE_H_

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "engine/thread_annotations.h"
#include "io/remote/http/clock.h"

namespace sluice::remote {

// Says (engine/note.h) that a server fails and until when it is tried, and that
// it answers again: each once, however many requests wait for it, and no second
// time within a minute. Thread-safe.
class OutageNotes {
 public:
  // `clock` must outlive this.
  explicit OutageNotes(Clock& clock) : clock_(clock) {}

  struct Failing {
    std::string_view what;    // "cannot read 's3://bucket/key'"
    std::string_view reason;  // the last one
    std::chrono::milliseconds since{0}, left{0};  // from now, backwards and on
  };
  // A request to that server fails and will be made again.
  void Waits(const std::string& server, const Failing& request);
  // A request that had failed before is answered, or is not made any more.
  void Answers(const std::string& server);
  void Ends(const std::string& server);

 private:
  struct Told {
    std::chrono::steady_clock::time_point begin, said;
    bool over = true;
  };

  Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Told> told_ GUARDED_BY(mutex_);
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_OUTAGE_H_
