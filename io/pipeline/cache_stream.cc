#include "io/pipeline/cache_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sluice {

namespace {

constexpr int64_t kSizeNumber = -1;
constexpr char kSize[] = "size";

}  // namespace

Status CacheStream::StartEpoch(uint64_t epoch) {
  read_ = false;
  at_ = input_at_ = 0;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] {
    kept_->examples->Refresh();
    if (kept_->size >= 0 || !kept_->outlives_process) return;
    const auto size = kept_->examples->Find(kSizeNumber);
    if (size) kept_->size = (*size)[kSize].IntAt(0);
  }));
  return input_->StartEpoch(epoch);
}

// The input has ended.
Status CacheStream::NoteSize(int64_t size) {
  kept_->size = size;
  if (!kept_->outlives_process) return {};
  return CatchErrors([&] {
    kept_->examples->Add(kSizeNumber, {{kSize, Tensor::Scalar(size)}});
  });
}

// False where the input ends before.
Result<bool> CacheStream::BringInput(int64_t to) {
  read_ = true;
  SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(to - input_at_));
  input_at_ += passed;
  if (input_at_ == to) return true;
  SLUICE_RETURN_IF_ERROR(NoteSize(input_at_));
  return false;
}

Result<bool> CacheStream::Next(Example* example) {
  const int64_t size = kept_->size;
  if (size >= 0 && at_ >= size) {
    // Where the input was read so far, it may have to say that it goes on.
    if (!read_ || input_at_ != size) return false;
    SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(example));
    if (!more) return false;
    return DataLoss(fmt::format(
        "Cache: its input has more than the {} elements of before", size));
  }
  std::optional<Example> found;
  SLUICE_RETURN_IF_ERROR(
      CatchErrors([&] { found = kept_->examples->Find(at_); }));
  if (found) {
    *example = std::move(*found);
    ++at_;
    return true;
  }
  SLUICE_ASSIGN_OR_RETURN(const bool there, BringInput(at_));
  if (!there) return false;
  SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(example));
  if (!more) {
    SLUICE_RETURN_IF_ERROR(NoteSize(at_));
    return false;
  }
  input_at_ = at_ + 1;
  SLUICE_RETURN_IF_ERROR(
      CatchErrors([&] { kept_->examples->Add(at_, *example); }));
  ++at_;
  return true;
}

Result<int64_t> CacheStream::Skip(int64_t n) {
  const int64_t size = kept_->size;
  if (size >= 0) {
    n = std::clamp<int64_t>(size - at_, 0, n);
    at_ += n;
    return n;
  }
  // Only the input knows how many there are.
  n = std::min(n, INT64_MAX - at_);
  SLUICE_ASSIGN_OR_RETURN(const bool there, BringInput(at_ + n));
  const int64_t from = at_;
  at_ = there ? at_ + n : std::max(at_, input_at_);
  return at_ - from;
}

Status CacheStream::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(at_, mark->Next());
  const int64_t size = kept_->size;
  if (size >= 0 && at_ > size) {
    return OutOfRange("the position is behind the end of the cache's input");
  }
  return {};
}

}  // namespace sluice
