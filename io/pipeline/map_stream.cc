#include "io/pipeline/map_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/ceil_div.h"
#include "engine/runtime/trace.h"

namespace sluice {
namespace {

// How many elements a thread may be ahead of who asks for them.
constexpr size_t kAheadPerThread = 2;

// And *since_ns is now.
double SecondsSince(int64_t* since_ns) {
  const int64_t now = SteadyNowNs();
  return 1e-9 * static_cast<double>(now - std::exchange(*since_ns, now));
}

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
  Stop();
}

void ParallelAttempts::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  more_wanted_.NotifyAll();
  stop_input_->Set(true);
  for (std::thread& thread : running_) thread.join();
  stop_input_->Set(false);
  running_.clear();
}

Status ParallelAttempts::StartEpoch(uint64_t epoch) {
  Stop();
  epoch_ = epoch;
  place_ = first_ = 0;
  MutexLock lock(mutex_);
  ahead_.clear();
  error_ = {};
  reading_ = ended_ = stop_ = false;
  window_ = {};
  return input_->StartEpoch(epoch);
}

bool ParallelAttempts::MayRead() const {
  const size_t most = kAheadPerThread * static_cast<size_t>(wanted_);
  return !reading_ && ahead_.size() < most;
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
  if (running_.empty()) {
    SaveInput(mark);
  } else {
    SLUICE_CHECK(marks_);
    mark->insert(mark->end(), mark_.begin(), mark_.end());
  }
}

// A mark is where a batch ends, of whatever size batches were.
Status ParallelAttempts::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t place, mark->Next());
  place_ = first_ = static_cast<uint64_t>(place);
  return input_->Restore(mark);
}

void ParallelAttempts::Run(int number) {
  const bool timed = threads_.adapt != nullptr;
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!stop_ && !ended_ && (number >= wanted_ || !MayRead())) {
        (number >= wanted_ ? more_wanted_ : changed_).Wait(mutex_);
      }
      if (stop_ || ended_) return;
      reading_ = true;
    }
    PiecePtr piece;
    bool more = false, to_map = false;
    int64_t begin_ns = timed ? SteadyNowNs() : 0;
    Status status = CatchErrors([&] {
      piece = std::make_shared<Piece>();
      ThrowIfError(ReadPiece(piece.get(), &more));
      to_map = piece->passed == 0;  // once it is in ahead_, Skip may change it
      MutexLock lock(mutex_);
      if (more) ahead_.push_back(piece);
    });
    {
      MutexLock lock(mutex_);
      reading_ = false;
      if (timed) window_.reading += SecondsSince(&begin_ns);
      changed_.NotifyAll();
      if (!status.ok() || !more) {
        error_ = status;
        ended_ = true;
        return;
      }
    }
    if (!to_map) continue;
    {
      const InStage in(stage_);
      status = Map(fn_, seed_, epoch_, &piece->attempt);
    }
    MutexLock lock(mutex_);
    if (timed) window_.mapping += SecondsSince(&begin_ns);
    piece->attempt.status = std::move(status);
    piece->mapped = true;
    changed_.NotifyAll();
  }
}

Status ParallelAttempts::Start() {
  mark_.clear();
  if (marks_) SaveInput(&mark_);
  window_begin_ns_ = SteadyNowNs();
  try {
    AddThreads();
  } catch (const std::system_error& error) {
    return ResourceExhausted(fmt::format(
        "cannot start a thread to read examples: {}", error.what()));
  }
  return {};
}

// Fewer threads than are wanted do the same; throws where there is none.
void ParallelAttempts::AddThreads() {
  int wanted = 0;
  {
    MutexLock lock(mutex_);
    wanted = wanted_;
  }
  try {
    for (int i = static_cast<int>(running_.size()); i < wanted; ++i) {
      running_.emplace_back([this, i] { Run(i); });
    }
  } catch (const std::system_error&) {
    if (running_.empty()) throw;
  }
  if (stage_ != nullptr) {
    stage_->SetThreads(std::min(wanted, static_cast<int>(running_.size())),
                       threads_.adapt != nullptr);
  }
}

template <typename Ready>
void ParallelAttempts::WaitUntil(const Ready& ready) {
  if (ready()) return;
  const Waiting waiting;
  int64_t begin_ns = threads_.adapt ? SteadyNowNs() : 0;
  while (!ready()) changed_.Wait(mutex_);
  if (threads_.adapt) window_.waited += SecondsSince(&begin_ns);
}

// When a window is full: as many threads from now on as it calls for.
void ParallelAttempts::Adapt() {
  MapWindow window;
  {
    MutexLock lock(mutex_);
    if (window_.elements < window_size_) return;
    window = std::exchange(window_, {});
  }
  window.seconds = SecondsSince(&window_begin_ns_);
  const int64_t batch = std::max<int64_t>(1, needed_.end - needed_.begin);
  window_size_ = std::min(
      2 * window_size_,
      Times(batch, std::max<int64_t>(4, CeilDiv(kLeastWindow, batch))));
  const int wanted = std::clamp(threads_.adapt(window), 1, threads_.most);
  {
    MutexLock lock(mutex_);
    if (wanted == wanted_) return;
    wanted_ = wanted;
  }
  changed_.NotifyAll();
  more_wanted_.NotifyAll();
  AddThreads();
}

Result<bool> ParallelAttempts::Next(Attempt* attempt) {
  if (running_.empty()) SLUICE_RETURN_IF_ERROR(Start());
  if (threads_.adapt) Adapt();
  MutexLock lock(mutex_);
  WaitUntil([&]() REQUIRES(mutex_) {
    return ahead_.empty()
               ? ended_
               : ahead_.front()->mapped || ahead_.front()->passed > 0;
  });
  if (ahead_.empty()) {
    if (!error_.ok()) return error_;
    return false;
  }
  SLUICE_CHECK(ahead_.front()->passed == 0);  // it was not to be needed
  *attempt = std::move(ahead_.front()->attempt);
  mark_ = std::move(ahead_.front()->end);
  ahead_.pop_front();
  ++window_.elements;
  changed_.NotifyAll();
  return true;
}

Result<int64_t> ParallelAttempts::Skip(int64_t n) {
  if (running_.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input_->Skip(n));
    place_ += static_cast<uint64_t>(passed);
    return passed;
  }
  MutexLock lock(mutex_);
  int64_t left = n;
  while (left > 0) {
    WaitUntil([&]() REQUIRES(mutex_) { return !ahead_.empty() || ended_; });
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
    ahead_.pop_front();
    changed_.NotifyAll();
  }
  return n - left;
}

Status ParallelAttempts::PassOver(int64_t n) {
  SLUICE_CHECK(running_.empty());  // the threads have gone further
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
