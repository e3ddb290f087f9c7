// Passes on what the ranks print. Nothing here waits, and nothing grows without
// a bound: where the reader is slow, pipes are left full.
#ifndef SLUICE_APPS_SLUICERUN_OUTPUT_H_
#define SLUICE_APPS_SLUICERUN_OUTPUT_H_

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "dist/net/descriptor.h"

namespace sluice::launcher {

// A longer line is cut in lines of this many bytes: its rest would have to
// wait in memory, or the other ranks for its end.
inline constexpr size_t kLongestLine = size_t{4} << 20;

// A line of the launcher's own, on stderr behind its name; one that cannot be
// written is dropped.
void Say(const std::string& line);

// A sink of output: a terminal, pipe or file, whose modes are not touched,
// since others share it.
class Sink {
 public:
  // `name` is for messages. The descriptor stays the caller's.
  Sink(int descriptor, std::string name);

  // Keeps the text until Flush.
  void Append(std::string_view text);
  // Writes what can be written without waiting.
  void Flush();

  int descriptor() const { return descriptor_; }
  bool pending() const { return written_ < queue_.size(); }
  // No more should be read that would go here.
  bool full() const;
  // The errno of a write that failed; from then on all is dropped.
  int error() const { return error_; }
  const std::string& name() const { return name_; }

 private:
  int descriptor_;
  std::string name_;
  bool regular_ = false;  // a regular file: writing never waits for a reader
  std::string queue_;
  size_t written_ = 0;  // bytes of the queue that are gone
  int error_ = 0;
};

// The last lines of a stream.
class Tail {
 public:
  static constexpr size_t kLines = 10;
  static constexpr size_t kLineBytes = 1024;  // of each, the first

  void Add(std::string_view bytes);
  // Oldest first; an unfinished one counts.
  std::deque<std::string> Lines() const;

 private:
  std::deque<std::string> lines_;
  std::string unfinished_;
  bool begun_ = false;  // an unfinished line, though it may be of no bytes yet
};

// The last lines of a process.
struct Tails {
  Tail out, err;
  // The last lines on stderr; where there are none, those on stdout.
  std::deque<std::string> Lines() const;
};

// Reads a rank's stdout or stderr from its pipe and passes it on.
class Stream {
 public:
  enum class Form {
    kBytes,  // as they are
    kLines,  // whole lines, each behind the prefix; the last is ended
  };
  // `sink` and `tail` outlive this.
  Stream(dist::Descriptor pipe, Form form, std::string prefix, Sink* sink,
         Tail* tail);

  bool open() const { return pipe_.get() >= 0; }
  bool wants_read() const { return open() && !sink_->full(); }
  int descriptor() const { return pipe_.get(); }
  // Reads once, without waiting; at its end the stream is closed. False where
  // there was nothing.
  bool Read();
  // Closes the stream if the sink has failed: the rank's next write then fails
  // too, as it would without us in between.
  void CloseIfUnheard();
  // Gives up what was not read.
  void Close();

 private:
  void PassOn(std::string_view bytes);
  void EmitLine();

  dist::Descriptor pipe_;
  Form form_;
  std::string prefix_;
  Sink* sink_;
  Tail* tail_;
  std::string line_;  // unfinished
};

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_OUTPUT_H_
