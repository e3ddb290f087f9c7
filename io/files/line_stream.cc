#include "io/files/line_stream.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "io/files/without_query.h"

namespace sluice {

Compression DetectInText(std::string_view head) {
  return IsGzip(head) ? Compression::kGzip : Compression::kNone;
}

Result<std::unique_ptr<LineStream>> LineStream::Open(const std::string& path,
                                                     FileSystem& files,
                                                     size_t longest) {
  SLUICE_ASSIGN_OR_RETURN(auto bytes,
                          ByteStream::Open(path, DetectInText, files));
  return std::unique_ptr<LineStream>(
      new LineStream(WithoutQuery(path), std::move(bytes), longest));
}

Result<bool> LineStream::Next(std::string* line) {
  // A byte order mark and CR are not the line's own.
  const auto too_long = [&] {
    return line->size() > longest_ &&
           line->size() - longest_ > kByteOrderMark.size() + 1;
  };
  line->clear();
  bool ended = false;
  while (!ended && !too_long()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string_view bytes, bytes_->Peek());
    if (bytes.empty()) break;
    const size_t end = bytes.find('\n');
    ended = end != bytes.npos;
    line->append(bytes.substr(0, end));
    bytes_->Take(ended ? end + 1 : bytes.size());
  }
  if (ended && line->ends_with('\r')) line->pop_back();
  if (number_ == 0 && line->starts_with(kByteOrderMark)) {
    line->erase(0, kByteOrderMark.size());
  }
  if (line->empty() && !ended) return false;
  ++number_;
  if (line->size() <= longest_) return true;
  return DataLoss(
      fmt::format("{}: the line is longer than {} bytes", Place(), longest_));
}

Result<int64_t> LineStream::Skip(int64_t n) {
  std::string line;
  for (int64_t i = 0; i < n; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, Next(&line));
    if (!more) return i;
  }
  return n;
}

std::string LineStream::Place() const {
  return fmt::format("'{}', line {}", path_, number_);
}

}  // namespace sluice
