#include "io/pipeline/filter_stream.h"

#include <fmt/format.h>

namespace sluice {

Result<bool> FilterStream::Next(Example* example) {
  for (bool kept = false; !kept;) {
    SLUICE_RETURN_IF_ERROR(stop_->Check());
    SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(example));
    if (!more) return false;
    SLUICE_RETURN_IF_ERROR(CatchErrors([&] { kept = keep_(*example); }));
  }
  return true;
}

ExpectSizeStream::ExpectSizeStream(StreamPtr<Example> input, int64_t n,
                                   const std::string& source)
    : input_(std::move(input)),
      n_(n),
      by_(source.empty() ? "" : fmt::format(" by '{}'", source)) {}

Status ExpectSizeStream::StartEpoch(uint64_t epoch) {
  seen_ = 0;
  return input_->StartEpoch(epoch);
}

Status ExpectSizeStream::Count(int64_t got, int64_t wanted) {
  seen_ += got;
  if (got < wanted && seen_ < n_) {
    return DataLoss(fmt::format(
        "the input has {} elements, where {} were expected{}", seen_, n_, by_));
  }
  if (seen_ > n_) {
    return DataLoss(
        fmt::format("the input has more than the {} elements that were "
                    "expected{}",
                    n_, by_));
  }
  return {};
}

Result<bool> ExpectSizeStream::Next(Example* example) {
  SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(example));
  SLUICE_RETURN_IF_ERROR(Count(more ? 1 : 0, 1));
  return more;
}

Result<int64_t> ExpectSizeStream::Skip(int64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(n));
  SLUICE_RETURN_IF_ERROR(Count(passed, n));
  return passed;
}

void ExpectSizeStream::Save(Mark* mark) const {
  mark->push_back(seen_);
  input_->Save(mark);
}

Status ExpectSizeStream::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(seen_, mark->Next(0, n_));
  return input_->Restore(mark);
}

}  // namespace sluice
