#include "io/summaries/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>

#include "engine/catch_errors.h"
#include "io/files/record.h"
#include "io/images/png.h"
#include "io/summaries/event_proto.h"

namespace sluice {
namespace {

// A writer that is never flushed holds no more than this.
constexpr size_t kMaxPending = 1 << 20;

double WallTime() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
    return "localhost";
  }
  return name;
}

// An image of bytes from one of floating values 0..1.
Tensor ToBytes(const Tensor& image) {
  if (!IsFloating(image.dtype())) return image;
  Tensor bytes(DType::kUInt8, image.shape());
  for (int64_t i = 0; i < image.elements(); ++i) {
    const double scaled = image.At(i) * 255 + 0.5;
    // The comparison sends NaN to 0.
    bytes.data<uint8_t>()[i] =
        scaled > 0 ? static_cast<uint8_t>(std::min(scaled, 255.0)) : 0;
  }
  return bytes;
}

}  // namespace

EventWriter::EventWriter(std::string path, std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), file_(std::move(file)) {}

EventWriter::~EventWriter() {
  (void)Flush();  // who wants to know calls Flush
}

Result<std::unique_ptr<EventWriter>> EventWriter::Open(
    const std::string& directory, const std::string& suffix,
    FileSystem& files) {
  const double now = WallTime();
  auto version = EncodeVersionEvent({now, 0});
  if (!version.ok()) return version.status();
  SLUICE_RETURN_IF_ERROR(files.MakeDirectories(directory));
  static std::atomic<int> count = 0;
  std::string path =
      JoinPath(directory, fmt::format("events.out.tfevents.{:010}.{}.{}.{}{}",
                                      static_cast<int64_t>(now), HostName(),
                                      getpid(), count++, suffix));
  SLUICE_ASSIGN_OR_RETURN(auto file, files.OpenAppend(path));
  std::unique_ptr<EventWriter> writer(
      new EventWriter(std::move(path), std::move(file)));
  SLUICE_RETURN_IF_ERROR(writer->Add(std::move(version)));
  SLUICE_RETURN_IF_ERROR(writer->Flush());
  return writer;
}

Status EventWriter::Add(Result<std::string> event) {
  SLUICE_RETURN_IF_ERROR(event.status());
  SLUICE_RETURN_IF_ERROR(error_);
  AppendRecord(*event, &pending_);
  return pending_.size() < kMaxPending ? Status::Ok() : Flush();
}

Status EventWriter::Flush() {
  if (error_.ok() && !pending_.empty()) error_ = file_->Append(pending_);
  pending_.clear();
  return error_;
}

Status EventWriter::Sync() {
  if (Flush().ok()) error_ = file_->Sync();
  return error_;
}

Status EventWriter::Scalar(const std::string& tag, int64_t step, double value) {
  return Add(EncodeScalarEvent({WallTime(), step}, tag, value));
}

Status EventWriter::Histogram(const std::string& tag, int64_t step,
                              const Tensor& values) {
  return Add(EncodeHistogramEvent({WallTime(), step}, tag, values));
}

Status EventWriter::Image(const std::string& tag, int64_t step,
                          const Tensor& image) {
  const auto png = CatchErrors([&] { return EncodePng(ToBytes(image)); });
  if (!png.ok()) return png.status();
  return Add(EncodeImageEvent({WallTime(), step}, tag, image.shape(), *png));
}

Status EventWriter::Graph(const EventGraph& graph) {
  return Add(EncodeGraphEvent({WallTime(), 0}, graph));
}

Result<EventFile> ParseEvents(std::string_view bytes) {
  EventFile file;
  RecordReader reader(bytes);
  std::string_view payload;
  for (;;) {
    const auto more = reader.Next(&payload);
    if (more.ok() && !*more) return file;
    Status status = more.status();
    if (status.ok()) {
      auto records = DecodeEvent(payload);
      if (records.status().code() == Code::kUnimplemented) {
        return records.status();
      }
      status = records.status();
      if (records.ok()) {
        std::move(records->begin(), records->end(),
                  std::back_inserter(file.records));
      }
    }
    if (!status.ok()) {
      file.warning = status.message();
      return file;
    }
  }
}

Result<EventFile> ReadEvents(const std::string& path, FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files.Read(path));
  return ParseEvents(bytes);
}

}  // namespace sluice
