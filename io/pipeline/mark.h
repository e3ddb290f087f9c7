// Marks: where a stream is within its epoch, as numbers. Internal to io.
//
// Each stage writes what it needs to find its place again, its input's place
// included (Stream::Save), and reads as many numbers back (Stream::Restore).
#ifndef SLUICE_IO_PIPELINE_MARK_H_
#define SLUICE_IO_PIPELINE_MARK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/status.h"

namespace sluice {

using Mark = std::vector<int64_t>;

// Reads a mark that may come from a damaged file.
class MarkReader {
 public:
  explicit MarkReader(std::span<const int64_t> mark) : rest_(mark) {}

  // Larger than anything that is counted, but not so that one more is too much.
  static constexpr int64_t kMost = INT64_MAX / 2;

  // The next number. kInvalidArgument where there is none, or where it is not
  // within least..most.
  Result<int64_t> Next(int64_t least = 0, int64_t most = kMost) {
    if (rest_.empty() || rest_[0] < least || rest_[0] > most) {
      return InvalidArgument(
          "the position's numbers do not fit the input pipeline");
    }
    const int64_t number = rest_[0];
    rest_ = rest_.subspan(1);
    return number;
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  std::span<const int64_t> rest_;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_MARK_H_
