// TensorBoard event files: scalars, histograms, images and the graph.
//
// A file is a sequence of TFRecords (io/files/record.h), each a serialised
// tensorflow.Event (io/proto/event.proto); the first says "brain.Event:2".
// Built without protobuf every function returns kUnimplemented; without libpng
// Image does.
#ifndef SLUICE_IO_SUMMARIES_EVENT_FILE_H_
#define SLUICE_IO_SUMMARIES_EVENT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_PUBLIC sluice {

// A graph as TensorBoard's graph tab shows it.
struct EventGraph {
  struct Node {
    std::string name;  // "fc1/matmul": slashes make groups
    std::string op;
    // "node", "node:1" for its second output, "^node" for a control edge.
    std::vector<std::string> inputs;
    std::string device;                // "/cpu:0"
    std::vector<Shape> output_shapes;  // unknown dimensions allowed
    // Shown as text.
    std::vector<std::pair<std::string, std::string>> attributes;
  };
  std::vector<Node> nodes;
};

// Appends to one event file. One thread at a time. Records are buffered until
// Flush; the destructor flushes. Once writing has failed every call returns
// that error.
class EventWriter {
 public:
  // Creates the folder and in it
  // events.out.tfevents.<seconds>.<host>.<pid>.<n>. `suffix` is added to the
  // name (".eval").
  static Result<std::unique_ptr<EventWriter>> Open(
      const std::string& directory, const std::string& suffix = "",
      FileSystem& files = FileSystem::Default());
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  Status Scalar(const std::string& tag, int64_t step, double value);
  // Writes a histogram of all finite elements; the buckets are TensorFlow's
  // (each 10 % wider than the one before).
  Status Histogram(const std::string& tag, int64_t step, const Tensor& values);
  // [height,width,channels] with 1, 3 or 4 channels; uint8, or floating 0..1.
  Status Image(const std::string& tag, int64_t step, const Tensor& image);
  Status Graph(const EventGraph& graph);

  Status Flush();
  // Returns when all events so far are on the disk.
  Status Sync();
  const std::string& path() const { return path_; }

 private:
  EventWriter(std::string path, std::unique_ptr<WritableFile> file);
  Status Add(Result<std::string> event);

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::string pending_;
  Status error_;  // of the last of them; half a record may be in the file
};

// One value of an event file, for people.
struct EventRecord {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string kind;  // "version", "scalar", "histogram", "image", "graph", ...
  std::string tag;
  double value = 0;     // a scalar's
  std::string summary;  // one line: the scalar, the histogram's range, ...
};
struct EventFile {
  std::vector<EventRecord> records;
  // What is wrong and where, if the file ends early or goes bad; else empty.
  // The events before are in `records`.
  std::string warning;
};
Result<EventFile> ReadEvents(const std::string& path,
                             FileSystem& files = FileSystem::Default());
// Reads an event file's bytes in memory.
Result<EventFile> ParseEvents(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_SUMMARIES_EVENT_FILE_H_
