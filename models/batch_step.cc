#include "models/batch_step.h"

#include <algorithm>

namespace sluice {
namespace {

// Shapes of batch kept ready: the usual one and a remainder or two.
constexpr size_t kPrepared = 4;

}  // namespace

BatchStep::BatchStep(Session& session, const Features& features,
                     std::vector<Output> fetches,
                     std::vector<Operation> targets)
    : session_(session),
      placeholders_(features.begin(), features.end()),
      fetches_(std::move(fetches)),
      targets_(std::move(targets)),
      feeds_(placeholders_.size()) {}

BatchStep::Prepared& BatchStep::PreparedFor(const std::vector<Tensor>& feeds) {
  auto fits = [&](const Prepared& prepared) {
    return std::equal(feeds.begin(), feeds.end(), prepared.shapes.begin(),
                      [](const Tensor& feed, const Shape& shape) {
                        return feed.shape() == shape;
                      });
  };
  auto found = std::find_if(prepared_.begin(), prepared_.end(), fits);
  if (found != prepared_.end()) {
    std::rotate(prepared_.begin(), found, found + 1);
    return prepared_.front();
  }
  Prepared prepared;
  std::vector<FeedShape> shapes;
  for (size_t i = 0; i < feeds.size(); ++i) {
    prepared.shapes.push_back(feeds[i].shape());
    shapes.push_back({placeholders_[i].second, feeds[i].shape()});
  }
  prepared.step = session_.Prepare(shapes, fetches_, targets_);
  prepared.results = prepared.step.MakeFetches();
  if (prepared_.size() == kPrepared) prepared_.pop_back();
  prepared_.insert(prepared_.begin(), std::move(prepared));
  return prepared_.front();
}

std::span<const Tensor> BatchStep::Run(const Example& batch) {
  for (size_t i = 0; i < feeds_.size(); ++i) {
    feeds_[i] = batch[placeholders_[i].first];
  }
  Prepared& prepared = PreparedFor(feeds_);
  prepared.step.Run(feeds_, prepared.results);
  return prepared.results;
}

std::vector<Feed> BatchStep::FeedsOf(const Example& batch) const {
  std::vector<Feed> feeds;
  for (const auto& [name, placeholder] : placeholders_) {
    feeds.push_back({placeholder, batch[name]});
  }
  return feeds;
}

}  // namespace sluice
