#include "io/records/record_stream.h"

#include <utility>

#include "engine/catch_errors.h"
#include "io/files/record.h"

namespace sluice {
namespace {

// A whole record may begin like a compressed file: the checksum of its length
// tells.
Compression DetectInRecords(std::string_view head) {
  return RecordLength(head).ok() ? Compression::kNone : CompressionOf(head);
}

}  // namespace

Result<std::unique_ptr<RecordFileStream>> RecordFileStream::Open(
    const std::string& path, FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(auto bytes,
                          ByteStream::Open(path, DetectInRecords, files));
  return std::unique_ptr<RecordFileStream>(
      new RecordFileStream(std::move(bytes)));
}

// Goes to the end of the next record; false where there is none. Its head is
// put into `frame`, and the rest behind it where that is to be kept.
Result<bool> RecordFileStream::Pass(bool keep, std::string* frame) {
  const uint64_t begin = bytes_->position();
  frame->clear();
  SLUICE_ASSIGN_OR_RETURN(const uint64_t head,
                          bytes_->Append(kRecordHeadBytes, frame));
  if (head == 0) return false;
  begin_ = begin;
  const auto length = RecordLength(*frame);
  if (!length.ok()) return length.status().WithContext(Place());
  // One after the other: any length can have a right checksum, and their sum
  // may have more than 64 bits.
  for (const uint64_t n :
       {*length, uint64_t{kRecordFrameBytes - kRecordHeadBytes}}) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t got,
                            keep ? bytes_->Append(n, frame) : bytes_->Skip(n));
    if (got < n) {
      return DataLoss("the file ends within the record").WithContext(Place());
    }
  }
  return true;
}

Result<bool> RecordFileStream::PassUnlessBroken(bool keep, std::string* frame) {
  SLUICE_RETURN_IF_ERROR(broken_);
  auto more = CatchErrors([&] { return Pass(keep, frame); });
  broken_ = more.status();
  return more;
}

Result<bool> RecordFileStream::Next(std::string* payload) {
  SLUICE_ASSIGN_OR_RETURN(const bool more, PassUnlessBroken(true, payload));
  if (!more) return false;
  const auto checked = RecordPayload(*payload);
  if (!checked.ok()) return checked.status().WithContext(Place());
  const size_t length = checked->size();
  payload->erase(0, kRecordHeadBytes);
  payload->resize(length);
  return true;
}

Result<int64_t> RecordFileStream::Skip(int64_t n) {
  std::string head;
  for (int64_t i = 0; i < n; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, PassUnlessBroken(false, &head));
    if (!more) return i;
  }
  return n;
}

}  // namespace sluice
