#include "io/pipeline/parts.h"

namespace sluice {
namespace {

// A stream and the dataset that it is of.
class OwningStream : public Stream<Example> {
 public:
  OwningStream(NodePtr node, const Opening& opening)
      : node_(std::move(node)), stream_(node_->Open(opening)) {}
  Status StartEpoch(uint64_t epoch) override {
    return stream_->StartEpoch(epoch);
  }
  Result<bool> Next(Example* example) override {
    return stream_->Next(example);
  }
  Result<int64_t> Skip(int64_t n) override { return stream_->Skip(n); }
  void Save(Mark* mark) const override { stream_->Save(mark); }
  Status Restore(MarkReader* mark) override { return stream_->Restore(mark); }

 private:
  const NodePtr node_;
  const StreamPtr<Example> stream_;
};

}  // namespace

// They are input 1, after the elements that are opened: one stage for all.
PartOpener::PartOpener(Open open, const Opening& opening)
    : open_(std::move(open)),
      opening_({.cached = opening.cached,
                .marks = true,
                .stop = opening.stop,
                .ahead = opening.ahead,
                .times = opening.times,
                .stage = opening.stage,
                .input = 1}) {}

Result<StreamPtr<Example>> PartOpener::operator()(const Example& element,
                                                  int64_t number,
                                                  uint64_t epoch) const {
  StreamPtr<Example> stream;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] {
    NodePtr node = open_(element).node();
    RequireExamples(*node, "a dataset that Interleave opens");
    if (opening_.cached) RefuseToCache(*node);
    stream = std::make_unique<OwningStream>(std::move(node), opening_);
  }));
  // Random steps draw by it, and each element's are to draw something else.
  SLUICE_RETURN_IF_ERROR(
      stream->StartEpoch(HashKey(epoch, static_cast<uint64_t>(number))));
  return stream;
}

Status PartsInTurn::StartEpoch(uint64_t epoch) {
  epoch_ = epoch;
  taken_ = 0;
  return input_->StartEpoch(epoch);
}

Result<bool> PartsInTurn::Next(Part* part) {
  part->place = {.number = taken_, .before = {}};
  input_->Save(&part->place.before);
  Example element;
  SLUICE_ASSIGN_OR_RETURN(const bool more, input_->Next(&element));
  if (!more) return false;
  SLUICE_ASSIGN_OR_RETURN(part->stream, open_(element, taken_, epoch_));
  ++taken_;
  return true;
}

void PartsInTurn::Save(std::span<const Place* const> open, Mark* mark) const {
  SavePlaces(
      open, taken_, [&](Mark* at) { input_->Save(at); }, mark);
}

Result<std::vector<Part>> PartsInTurn::Restore(MarkReader* mark) {
  std::vector<Part> open;
  SLUICE_RETURN_IF_ERROR(Revisit(
      mark, input_.get(),
      [&](Place place, const Example& element) -> Status {
        SLUICE_ASSIGN_OR_RETURN(StreamPtr<Example> stream,
                                open_(element, place.number, epoch_));
        open.push_back({std::move(place), std::move(stream)});
        return {};
      },
      &taken_));
  return open;
}

}  // namespace sluice
