#include "io/cache/record_source.h"

#include <algorithm>
#include <cstring>

#include "io/files/crc32c.h"
#include "io/files/record.h"

namespace sluice {
namespace {

constexpr uint64_t kChecksumBytes = kRecordFrameBytes - kRecordHeadBytes;
// Of a record of more than the first, so many bytes are read at first as the
// second says, before the memory is there for the others.
constexpr uint64_t kSmall = 64 << 10, kBeginning = 4 << 10;
// Half of a small second-level cache.
constexpr size_t kPiece = 128 << 10;

}  // namespace

Status RecordSource::ReadHead() {
  if (bytes_ < kRecordFrameBytes) return DataLoss("a record is too short");
  SLUICE_RETURN_IF_ERROR(Fill(bytes_ <= kSmall ? bytes_ : kBeginning));
  SLUICE_ASSIGN_OR_RETURN(
      left_, RecordLength(std::string_view(buffer_).substr(0, end_)));
  if (left_ != bytes_ - kRecordFrameBytes) {
    return DataLoss("a record is of another length");
  }
  begin_ = kRecordHeadBytes;
  return {};
}

Result<std::string_view> RecordSource::Take(size_t n) {
  SLUICE_RETURN_IF_ERROR(Fill(n));
  const std::string_view taken = std::string_view(buffer_).substr(begin_, n);
  begin_ += n;
  left_ -= n;
  return taken;
}

Status RecordSource::Read(void* to, size_t n) {
  const size_t here = std::min(n, end_ - begin_);
  if (here > 0) std::memcpy(to, buffer_.data() + begin_, here);
  begin_ += here;
  left_ -= n;
  return ReadOn(static_cast<char*>(to) + here, n - here);
}

Status RecordSource::Verify() {
  if (left_ > 0) return DataLoss("there are bytes behind an example");
  SLUICE_RETURN_IF_ERROR(Fill(kChecksumBytes));
  uint32_t stored = 0;
  for (size_t i = kChecksumBytes; i-- > 0;) {
    stored = stored << 8 | static_cast<uint8_t>(buffer_[begin_ + i]);
  }
  if (stored == MaskCrc(crc_)) return {};
  return DataLoss("the checksum of the record is wrong");
}

Status RecordSource::ReadOn(char* to, size_t n) {
  while (n > 0) {
    const size_t piece = std::min(n, kPiece);
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            file_.ReadAt(offset_ + at_, to, piece));
    if (got < piece) return DataLoss("the file ends within the record");
    const uint64_t first = std::max<uint64_t>(at_, kRecordHeadBytes);
    const uint64_t last = std::min(at_ + piece, bytes_ - kChecksumBytes);
    if (first < last) {
      crc_ = Crc32c({to + (first - at_), last - first}, crc_);
    }
    at_ += piece;
    to += piece;
    n -= piece;
  }
  return {};
}

Status RecordSource::Fill(size_t n) {
  const size_t here = end_ - begin_;
  if (here >= n) return {};
  // What follows is wanted next, too, unless that is a tensor.
  const auto more = static_cast<size_t>(std::min<uint64_t>(
      bytes_ - at_, std::max<uint64_t>(n - here, kBeginning)));
  if (more < n - here) return DataLoss("the file ends within the record");
  if (buffer_.size() < here + more) buffer_.resize(here + more);
  if (here > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, here);
  begin_ = 0;
  end_ = here + more;
  return ReadOn(buffer_.data() + here, more);
}

}  // namespace sluice
