// Sequences that dataset iterators are made of. Internal to io.
//
// The reordering ones are templates: over examples in general, and over row
// numbers where the examples are rows of tensors in memory, so that nothing is
// copied until Batch gathers its rows.
#ifndef SLUICE_IO_PIPELINE_STREAM_H_
#define SLUICE_IO_PIPELINE_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "io/counter_random.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/mark.h"

namespace sluice {

// The product of two numbers that are not negative, or the largest there is.
constexpr int64_t Times(int64_t a, int64_t b) {
  return b > 0 && a > INT64_MAX / b ? INT64_MAX : a * b;
}

// Elements in order. What it yields is a pure function of the epoch and of the
// number of elements consumed in it. One thread at a time. After an error only
// StartEpoch may be called, but for those that a map passes over.
template <typename T>
class Stream {
 public:
  virtual ~Stream() = default;
  // Goes to the first element of an epoch. Must be called before Next.
  virtual Status StartEpoch(uint64_t epoch) = 0;
  // False at the end.
  virtual Result<bool> Next(T* element) = 0;
  // Passes over n elements; returns how many there were.
  virtual Result<int64_t> Skip(int64_t n) {
    T element;
    for (int64_t i = 0; i < n; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, Next(&element));
      if (!more) return i;
    }
    return n;
  }
  // Passes over n examples that yielded no element: below a Batch, single
  // ones; below a map that passes over bad examples, elements of its input.
  virtual Status PassOver(int64_t n) { return Skip(n).status(); }

  // Appends where it is in its epoch, which is behind what Next and Skip gave,
  // whatever was read ahead. Not after an error.
  virtual void Save(Mark* mark) const = 0;
  // Goes there, of an equal stream in an equal epoch; only right after
  // StartEpoch. kInvalidArgument for numbers that say no place.
  virtual Status Restore(MarkReader* mark) = 0;
};

template <typename T>
using StreamPtr = std::unique_ptr<Stream<T>>;

// Skips exactly n elements, which were there when a position was saved.
template <typename T>
Status SkipAll(Stream<T>* stream, int64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t passed, stream->Skip(n));
  if (passed == n) return {};
  return OutOfRange("the position is behind the end of the input");
}

// 0, 1, ..., n - 1.
class RangeStream : public Stream<int64_t> {
 public:
  explicit RangeStream(int64_t n) : n_(n) {}
  Status StartEpoch(uint64_t) override {
    next_ = 0;
    return {};
  }
  Result<bool> Next(int64_t* element) override {
    if (next_ == n_) return false;
    *element = next_++;
    return true;
  }
  Result<int64_t> Skip(int64_t n) override {
    n = std::min(n, n_ - next_);
    next_ += n;
    return n;
  }
  void Save(Mark* mark) const override { mark->push_back(next_); }
  Status Restore(MarkReader* mark) override {
    SLUICE_ASSIGN_OR_RETURN(next_, mark->Next(0, n_));
    return {};
  }

 private:
  const int64_t n_;
  int64_t next_ = 0;
};

template <typename T>
class TakeStream : public Stream<T> {
 public:
  TakeStream(StreamPtr<T> input, int64_t n) : input_(std::move(input)), n_(n) {}
  Status StartEpoch(uint64_t epoch) override {
    left_ = n_;
    return input_->StartEpoch(epoch);
  }
  Result<bool> Next(T* element) override {
    if (left_ == 0) return false;
    --left_;
    return input_->Next(element);
  }
  Result<int64_t> Skip(int64_t n) override {
    n = std::min(n, left_);
    left_ -= n;
    return input_->Skip(n);
  }
  void Save(Mark* mark) const override {
    mark->push_back(left_);
    input_->Save(mark);
  }
  Status Restore(MarkReader* mark) override {
    SLUICE_ASSIGN_OR_RETURN(left_, mark->Next(0, n_));
    return input_->Restore(mark);
  }

 private:
  StreamPtr<T> input_;
  const int64_t n_;
  int64_t left_ = 0;
};

// All but the first n.
template <typename T>
class SkipStream : public Stream<T> {
 public:
  SkipStream(StreamPtr<T> input, int64_t n) : input_(std::move(input)), n_(n) {}
  Status StartEpoch(uint64_t epoch) override {
    ahead_ = n_;
    return input_->StartEpoch(epoch);
  }
  Result<bool> Next(T* element) override {
    SLUICE_ASSIGN_OR_RETURN(const bool there, GoToFirst());
    return there ? input_->Next(element) : false;
  }
  Result<int64_t> Skip(int64_t n) override {
    if (n == 0) return 0;  // where it is: Save says the same
    SLUICE_ASSIGN_OR_RETURN(const bool there, GoToFirst());
    return there ? input_->Skip(n) : 0;
  }
  void Save(Mark* mark) const override {
    mark->push_back(ahead_);
    input_->Save(mark);
  }
  Status Restore(MarkReader* mark) override {
    SLUICE_ASSIGN_OR_RETURN(ahead_, mark->Next(0, n_));
    return input_->Restore(mark);
  }

 private:
  // False where the input ends before the first of ours.
  Result<bool> GoToFirst() {
    if (ahead_ == 0) return true;
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(ahead_));
    ahead_ -= passed;
    return ahead_ == 0;
  }

  StreamPtr<T> input_;
  const int64_t n_;
  int64_t ahead_ = 0;  // foreign elements before the next of ours
};

template <typename T>
class ShardStream : public Stream<T> {
 public:
  ShardStream(StreamPtr<T> input, int64_t index, int64_t count)
      : input_(std::move(input)), index_(index), count_(count) {}
  Status StartEpoch(uint64_t epoch) override {
    gap_ = index_;
    return input_->StartEpoch(epoch);
  }
  Result<bool> Next(T* element) override {
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(gap_));
    if (passed < gap_) return false;
    gap_ = count_ - 1;
    return input_->Next(element);
  }
  Result<int64_t> Skip(int64_t n) override {
    // No input has more of ours, whatever a position says.
    n = std::min(n, (INT64_MAX - gap_) / count_);
    if (n <= 0) return 0;
    const int64_t wanted = gap_ + 1 + (n - 1) * count_;
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(wanted));
    if (passed <= gap_) return 0;
    const int64_t ours = (passed - gap_ - 1) / count_ + 1;
    gap_ = count_ - 1;
    return ours;
  }
  void Save(Mark* mark) const override {
    mark->push_back(gap_);
    input_->Save(mark);
  }
  Status Restore(MarkReader* mark) override {
    SLUICE_ASSIGN_OR_RETURN(gap_, mark->Next(0, count_ - 1));
    return input_->Restore(mark);
  }

 private:
  StreamPtr<T> input_;
  const int64_t index_;
  const int64_t count_;
  int64_t gap_ = 0;  // foreign elements before the next of ours
};

// Draws from a buffer, which the input refills. With a buffer that holds all
// of it this is the Fisher-Yates shuffle.
template <typename T>
class ShuffleStream : public Stream<T> {
 public:
  ShuffleStream(StreamPtr<T> input, int64_t buffer, uint64_t seed)
      : input_(std::move(input)), capacity_(buffer), seed_(seed) {}
  Status StartEpoch(uint64_t epoch) override {
    random_ = CounterRandom(HashKey(seed_, epoch));
    buffer_.clear();
    filled_ = false;
    drawn_ = 0;
    return input_->StartEpoch(epoch);
  }
  Result<bool> Next(T* element) override {
    if (!filled_) SLUICE_RETURN_IF_ERROR(Fill());
    if (buffer_.empty()) return false;
    std::swap(buffer_[random_.Below(static_cast<uint32_t>(buffer_.size()))],
              buffer_.back());
    *element = std::move(buffer_.back());
    ++drawn_;
    SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&buffer_.back()));
    if (!more) buffer_.pop_back();
    return true;
  }
  // The buffer holds elements from anywhere before, so it is filled and drawn
  // from again.
  void Save(Mark* mark) const override { mark->push_back(drawn_); }
  Status Restore(MarkReader* mark) override {
    SLUICE_ASSIGN_OR_RETURN(const int64_t drawn, mark->Next());
    return SkipAll(this, drawn);
  }

 private:
  Status Fill() {
    filled_ = true;
    T element;
    while (static_cast<int64_t>(buffer_.size()) < capacity_) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&element));
      if (!more) break;
      buffer_.push_back(std::move(element));
    }
    return {};
  }

  StreamPtr<T> input_;
  const int64_t capacity_;
  const uint64_t seed_;
  CounterRandom random_{0};
  std::vector<T> buffer_;
  bool filled_ = false;
  int64_t drawn_ = 0;  // in the epoch
};

// Empty passes in a row after which a Repeat takes it that all are empty.
inline constexpr int64_t kMostEmptyPasses = 100;

// Passes number epoch * n ... epoch * n + n - 1 of the input, or all of them.
template <typename T>
class RepeatStream : public Stream<T> {
 public:
  // n < 0: for ever. `size` is the input's cardinality, which may not be known;
  // `passes_differ` says whether after an empty pass another one may have
  // something.
  RepeatStream(StreamPtr<T> input, int64_t n, int64_t size, bool passes_differ)
      : input_(std::move(input)),
        n_(n),
        size_(size),
        most_empty_(passes_differ ? kMostEmptyPasses : 1) {}
  Status StartEpoch(uint64_t epoch) override {
    // No two passes of any epochs have the same number.
    first_pass_ = n_ >= 0      ? epoch * static_cast<uint64_t>(n_)
                  : epoch == 0 ? 0
                               : HashKey(epoch, 0);
    empty_ = 0;
    return StartPass(0);
  }
  Result<bool> Next(T* element) override {
    while (n_ < 0 || pass_ < n_) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
      if (more) {
        ++in_pass_;
        return true;
      }
      SLUICE_ASSIGN_OR_RETURN(const bool another, NextPass());
      if (!another) return false;
    }
    return false;
  }
  Result<int64_t> Skip(int64_t n) override {
    if (n_ == 0 || size_ == 0) return 0;
    if (size_ == kInfinite) return input_->Skip(n);
    if (size_ == kUnknownCardinality) return SkipPassByPass(n);
    const int64_t at = pass_ * size_ + in_pass_;
    // For ever is as many as can be counted.
    n = std::min(n, (n_ >= 0 ? Times(n_, size_) : INT64_MAX) - at);
    if (n <= 0) return 0;
    const int64_t pass = (at + n) / size_;
    if (pass != pass_) SLUICE_RETURN_IF_ERROR(StartPass(pass));
    const int64_t rest = (at + n) % size_ - in_pass_;
    in_pass_ += rest;
    if (n_ < 0 || pass_ < n_) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(rest));
      if (passed != rest) return Internal("Repeat: its input became shorter");
    }
    return n;
  }
  void Save(Mark* mark) const override {
    mark->push_back(pass_);
    mark->push_back(in_pass_);
    if (n_ < 0 || pass_ < n_) input_->Save(mark);
  }
  Status Restore(MarkReader* mark) override {
    const int64_t most =
        n_ < 0 ? MarkReader::kMost / std::max<int64_t>(size_, 1) : n_;
    SLUICE_ASSIGN_OR_RETURN(const int64_t pass, mark->Next(0, most));
    SLUICE_RETURN_IF_ERROR(StartPass(pass));
    SLUICE_ASSIGN_OR_RETURN(in_pass_, mark->Next());
    return n_ < 0 || pass < n_ ? input_->Restore(mark) : Status();
  }

 private:
  Result<int64_t> SkipPassByPass(int64_t n) {
    int64_t left = n;
    while (n_ < 0 || pass_ < n_) {
      SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(left));
      left -= passed;
      in_pass_ += passed;
      if (left == 0) break;
      SLUICE_ASSIGN_OR_RETURN(const bool another, NextPass());
      if (!another) break;
    }
    return n - left;
  }
  // To be called behind the end of a pass; false where none follows.
  Result<bool> NextPass() {
    if (size_ == kInfinite) return false;
    empty_ = in_pass_ == 0 ? empty_ + 1 : 0;
    if (empty_ >= most_empty_) return false;
    SLUICE_RETURN_IF_ERROR(StartPass(pass_ + 1));
    return n_ < 0 || pass_ < n_;
  }
  Status StartPass(int64_t pass) {
    pass_ = pass;
    in_pass_ = 0;
    if (n_ >= 0 && pass_ >= n_) return {};
    return input_->StartEpoch(first_pass_ + static_cast<uint64_t>(pass));
  }

  StreamPtr<T> input_;
  const int64_t n_;
  const int64_t size_;
  const int64_t most_empty_;
  int64_t empty_ = 0;  // passes in a row
  uint64_t first_pass_ = 0;
  int64_t pass_ = 0;
  int64_t in_pass_ = 0;  // elements consumed in it
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_STREAM_H_
