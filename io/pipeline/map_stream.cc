#include "io/pipeline/map_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// How many elements a thread may be ahead of who asks for them.
constexpr size_t kAheadPerThread = 2;

Status Map(const KeyedMap& fn, uint64_t seed, uint64_t epoch,
           Attempt* attempt) {
  const uint64_t key = HashKey(seed, epoch, attempt->place);
  return ApplyMap(&attempt->example, [&] { fn(attempt->example, key); });
}

}  // namespace

Status SerialAttempts::StartEpoch(uint64_t epoch) {
  epoch_ = epoch;
  place_ = 0;
  return input_->StartEpoch(epoch);
}

Result<bool> SerialAttempts::Next(Attempt* attempt) {
  SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&attempt->example));
  if (!more) return false;
  attempt->place = place_++;
  attempt->status = Map(fn_, seed_, epoch_, attempt);
  return true;
}

Result<int64_t> SerialAttempts::Skip(int64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(n));
  place_ += static_cast<uint64_t>(passed);
  return passed;
}

void SerialAttempts::Save(Mark* mark) const {
  mark->push_back(static_cast<int64_t>(place_));
  input_->Save(mark);
}

Status SerialAttempts::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t place, mark->Next());
  place_ = static_cast<uint64_t>(place);
  return input_->Restore(mark);
}

ParallelAttempts::~ParallelAttempts() {
  StopThreads();
}

Status ParallelAttempts::StartEpoch(uint64_t epoch) {
  StopThreads();
  epoch_ = epoch;
  place_ = first_ = 0;
  MutexLock lock(mutex_);
  ahead_.clear();
  bytes_.Clear();
  error_ = {};
  reading_ = false;
  return input_->StartEpoch(epoch);
}

// Reads what comes next; `more` says whether there was anything. What is not
// needed ends with its batch, since there a position may be saved.
Status ParallelAttempts::ReadPiece(Piece* piece, bool* more) {
  const auto row = static_cast<int64_t>((place_ - first_) %
                                        static_cast<uint64_t>(needed_.n));
  if (row < needed_.begin || row >= needed_.end) {
    const int64_t end = row < needed_.begin ? needed_.begin : needed_.n;
    SLUICE_ASSIGN_OR_RETURN(piece->passed, input_->Skip(end - row));
    *more = piece->passed > 0;
    place_ += static_cast<uint64_t>(piece->passed);
  } else {
    SLUICE_ASSIGN_OR_RETURN(*more, input_->Next(&piece->attempt.example));
    piece->attempt.place = place_++;
  }
  if (marks_ && *more) SaveInput(&piece->end);
  return {};
}

void ParallelAttempts::SaveInput(Mark* mark) const {
  mark->push_back(static_cast<int64_t>(place_));
  input_->Save(mark);
}

void ParallelAttempts::Save(Mark* mark) const {
  if (!running()) return SaveInput(mark);
  SLUICE_CHECK(marks_);
  mark->insert(mark->end(), mark_.begin(), mark_.end());
}

// A mark is where a batch ends, of whatever size batches were.
Status ParallelAttempts::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t place, mark->Next());
  place_ = first_ = static_cast<uint64_t>(place);
  return input_->Restore(mark);
}

AheadThreads::Work ParallelAttempts::TakeWork() {
  const size_t most = kAheadPerThread * static_cast<size_t>(wanted());
  size_t held = 0;
  if (reading_ || ahead_.size() >= most ||
      !bytes_.Begin(/*must=*/ahead_.empty(), &held)) {
    return nullptr;
  }
  reading_ = true;
  return [this, held] { ReadAndMap(held); };
}

void ParallelAttempts::ReadAndMap(size_t held) {
  int64_t since_ns = timed() ? SteadyNowNs() : 0;
  const PiecePtr piece = Read(held, &since_ns);
  if (piece == nullptr) return;
  Status status;
  {
    const InStage in(stage());
    status = Map(fn_, seed_, epoch_, &piece->attempt);
  }
  MutexLock lock(mutex_);
  if (timed()) window_.mapping += SecondsSince(&since_ns);
  piece->attempt.status = std::move(status);
  if (piece->skipped) return;
  bytes_.Made(HeldBytes(piece->attempt.example), &piece->held);
  piece->mapped = true;
  changed_.NotifyAll();
}

// The next piece, which is then ahead; null where it is not to be mapped.
ParallelAttempts::PiecePtr ParallelAttempts::Read(size_t held,
                                                  int64_t* since_ns) {
  PiecePtr piece;
  bool more = false, to_map = false;
  const Status status = CatchErrors([&] {
    piece = std::make_shared<Piece>();
    ThrowIfError(ReadPiece(piece.get(), &more));
    to_map = piece->passed == 0;  // once it is in ahead_, Skip may change it
    MutexLock lock(mutex_);
    if (!more) return;
    if (to_map) piece->held = std::exchange(held, 0);
    ahead_.push_back(piece);
  });
  MutexLock lock(mutex_);
  bytes_.Drop(&held);
  reading_ = false;
  if (timed()) window_.reading += SecondsSince(since_ns);
  changed_.NotifyAll();
  if (!status.ok() || !more) {
    error_ = status;
    no_more_work_ = true;
    return nullptr;
  }
  return to_map ? piece : nullptr;
}

Status ParallelAttempts::Start() {
  mark_.clear();
  if (marks_) SaveInput(&mark_);
  return StartThreads();
}

Result<bool> ParallelAttempts::Next(Attempt* attempt) {
  if (!running()) SLUICE_RETURN_IF_ERROR(Start());
  Adapt(std::max<int64_t>(1, needed_.end - needed_.begin));
  MutexLock lock(mutex_);
  WaitUntil([&]() REQUIRES(mutex_) {
    return ahead_.empty()
               ? no_more_work_
               : ahead_.front()->mapped || ahead_.front()->passed > 0;
  });
  if (ahead_.empty()) {
    if (!error_.ok()) return error_;
    return false;
  }
  SLUICE_CHECK(ahead_.front()->passed == 0);  // it was not to be needed
  *attempt = std::move(ahead_.front()->attempt);
  mark_ = std::move(ahead_.front()->end);
  bytes_.Drop(&ahead_.front()->held);
  ahead_.pop_front();
  ++window_.elements;
  changed_.NotifyAll();
  return true;
}

Result<int64_t> ParallelAttempts::Skip(int64_t n) {
  if (!running()) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(n));
    place_ += static_cast<uint64_t>(passed);
    return passed;
  }
  MutexLock lock(mutex_);
  int64_t left = n;
  while (left > 0) {
    WaitUntil(
        [&]() REQUIRES(mutex_) { return !ahead_.empty() || no_more_work_; });
    if (ahead_.empty()) {
      if (!error_.ok()) return error_;
      break;
    }
    Piece& first = *ahead_.front();
    const int64_t passed = std::min(left, std::max<int64_t>(first.passed, 1));
    left -= passed;
    if (first.passed > passed) {
      first.passed -= passed;
      continue;
    }
    mark_ = std::move(first.end);
    bytes_.Drop(&first.held);
    first.skipped = true;
    ahead_.pop_front();
    changed_.NotifyAll();
  }
  return n - left;
}

Status ParallelAttempts::PassOver(int64_t n) {
  SLUICE_CHECK(!running());  // the threads have gone further
  return input_->PassOver(n);
}

Status MapStream::StartEpoch(uint64_t epoch) {
  return attempts_->StartEpoch(epoch);
}

Result<bool> MapStream::Next(Example* example) {
  Attempt attempt;
  for (int64_t passed_over = 0;; ++passed_over) {
    attempt = {};
    SLUICE_ASSIGN_OR_RETURN(const bool more, attempts_->Next(&attempt));
    if (!more) return false;
    passed_over += attempt.example.passed_over();
    const Status& status = attempt.status;
    if (status.ok()) {
      *example = std::move(attempt.example);
      example->set_passed_over(passed_over);
      return true;
    }
    if (bad_ == nullptr || !BadExamples::IsOne(status)) return status;
    SLUICE_RETURN_IF_ERROR(
        bad_->Add(static_cast<int64_t>(attempt.place), status));
    if (passed_over + 1 >= most_in_a_row_) {
      return Status(status.code(),
                    "no example can be read: " + status.message());
    }
  }
}

// What was passed over was input of this map if it is the one that may, else of
// one below.
Status MapStream::PassOver(int64_t n) {
  if (bad_ == nullptr) return attempts_->PassOver(n);
  return Skip(n).status();
}

}  // namespace sluice
