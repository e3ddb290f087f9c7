#include "io/pipeline/combined_streams.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

Status StartAll(Streams* inputs, uint64_t epoch) {
  for (const auto& input : *inputs) {
    SLUICE_RETURN_IF_ERROR(input->StartEpoch(epoch));
  }
  return {};
}

void SaveAll(const Streams& inputs, Mark* mark) {
  for (const auto& input : inputs) input->Save(mark);
}

Status RestoreAll(Streams* inputs, MarkReader* mark) {
  for (const auto& input : *inputs) {
    SLUICE_RETURN_IF_ERROR(input->Restore(mark));
  }
  return {};
}

Status AddTo(Example* example, const Example& part) {
  for (const auto& [name, tensor] : part) {
    if (example->contains(name)) {
      return InvalidArgument(fmt::format(
          "Zip: two datasets have a tensor '{}'; rename it with Map", name));
    }
    example->Set(name, tensor);
  }
  return {};
}

}  // namespace

Status ZipStream::StartEpoch(uint64_t epoch) {
  return StartAll(&inputs_, epoch);
}

Result<bool> ZipStream::Next(Example* example) {
  Example all;
  for (const auto& input : inputs_) {
    Example part;
    SLUICE_ASSIGN_OR_RETURN(const bool more, input->Next(&part));
    if (!more) return false;
    SLUICE_RETURN_IF_ERROR(AddTo(&all, part));
  }
  *example = std::move(all);
  return true;
}

Result<int64_t> ZipStream::Skip(int64_t n) {
  for (const auto& input : inputs_) {
    SLUICE_ASSIGN_OR_RETURN(n, input->Skip(n));
  }
  return n;
}

void ZipStream::Save(Mark* mark) const {
  SaveAll(inputs_, mark);
}

Status ZipStream::Restore(MarkReader* mark) {
  return RestoreAll(&inputs_, mark);
}

Status ConcatenateStream::StartEpoch(uint64_t epoch) {
  current_ = 0;
  return StartAll(&inputs_, epoch);
}

Result<bool> ConcatenateStream::Next(Example* example) {
  for (; current_ < inputs_.size(); ++current_) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, inputs_[current_]->Next(example));
    if (more) return true;
  }
  return false;
}

Result<int64_t> ConcatenateStream::Skip(int64_t n) {
  int64_t left = n;
  for (; current_ < inputs_.size(); ++current_) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t passed,
                            inputs_[current_]->Skip(left));
    left -= passed;
    if (left == 0) break;
  }
  return n - left;
}

void ConcatenateStream::Save(Mark* mark) const {
  mark->push_back(static_cast<int64_t>(current_));
  if (current_ < inputs_.size()) inputs_[current_]->Save(mark);
}

Status ConcatenateStream::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t current,
                          mark->Next(0, static_cast<int64_t>(inputs_.size())));
  current_ = static_cast<size_t>(current);
  if (current_ == inputs_.size()) return {};
  return inputs_[current_]->Restore(mark);
}

Status ChooseStream::StartEpoch(uint64_t epoch) {
  epoch_ = epoch;
  drawn_ = 0;
  ended_.assign(inputs_.size(), false);
  return StartAll(&inputs_, epoch);
}

// One that has not ended.
size_t ChooseStream::Draw() const {
  double sum = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!ended_[i]) sum += weights_[i];
  }
  CounterRandom random(HashKey(seed_, epoch_, static_cast<uint64_t>(drawn_)));
  double left = random.Fraction() * sum;
  size_t last = inputs_.size();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (ended_[i]) continue;
    last = i;
    left -= weights_[i];
    if (left < 0) break;
  }
  return last;
}

template <typename Use>
Result<bool> ChooseStream::UseOne(const Use& use) {
  for (;;) {
    const size_t input = Draw();
    if (input == inputs_.size()) return false;
    ++drawn_;
    SLUICE_ASSIGN_OR_RETURN(const bool more, use(inputs_[input].get()));
    if (more) return true;
    ended_[input] = true;
  }
}

Result<bool> ChooseStream::Next(Example* example) {
  return UseOne([&](Stream<Example>* input) { return input->Next(example); });
}

Result<int64_t> ChooseStream::Skip(int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        const bool more, UseOne([](Stream<Example>* input) -> Result<bool> {
          SLUICE_ASSIGN_OR_RETURN(const int64_t passed, input->Skip(1));
          return passed == 1;
        }));
    if (!more) return i;
  }
  return n;
}

void ChooseStream::Save(Mark* mark) const {
  mark->push_back(drawn_);
  for (const bool ended : ended_) mark->push_back(ended ? 1 : 0);
  SaveAll(inputs_, mark);
}

Status ChooseStream::Restore(MarkReader* mark) {
  SLUICE_ASSIGN_OR_RETURN(drawn_, mark->Next());
  for (size_t i = 0; i < ended_.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t ended, mark->Next(0, 1));
    ended_[i] = ended == 1;
  }
  return RestoreAll(&inputs_, mark);
}

}  // namespace sluice
