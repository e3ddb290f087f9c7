// Dataset::Map in its forms.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/pipeline/dataset.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/kept_examples.h"
#include "io/pipeline/map_stream.h"

namespace sluice {
namespace {

// In a row, after which no more are tried, where a pass has nobody knows how
// many examples.
constexpr int64_t kManyBadExamples = 1 << 20;

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// fn of an example without those tensors, which it then has again.
KeyedMap PassingBy(std::vector<std::string> untouched, KeyedMap fn) {
  if (untouched.empty()) return fn;
  return [untouched = std::move(untouched), fn = std::move(fn)](
             Example& example, uint64_t key) {
    Example by, seen;
    for (auto& [name, tensor] : example) {
      (Contains(untouched, name) ? by : seen).Set(name, std::move(tensor));
    }
    fn(seen, key);
    for (auto& [name, tensor] : by) {
      if (seen.contains(name)) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("a map was to leave '{}' untouched and makes "
                                "one",
                                name));
      }
      seen.Set(name, std::move(tensor));
    }
    seen.set_passed_over(example.passed_over());
    seen.set_whole_rows(example.whole_rows());
    example = std::move(seen);
  };
}

class MapNode : public DerivedNode {
 public:
  // Without a seed it does not look at the key.
  MapNode(NodePtr input, KeyedMap fn, std::optional<uint64_t> seed,
          MapOptions options)
      : DerivedNode(std::move(input)),
        fn_(std::move(fn)),
        seed_(seed),
        options_(std::move(options)) {
    const BadExamples* bad = options_.bad.get();
    if (bad != nullptr) RefuseBadExamples(*input_, "a map that may, too");
    if (input_->shared()) RefusePassingOver(bad);
  }
  std::string stage() const override { return options_.name; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    // So many in a row are one whole pass at least, where that is known.
    const int64_t pass = examples_per_epoch();
    return std::make_unique<MapStream>(
        Attempts(opening), options_.bad,
        pass < 0 ? kManyBadExamples : Times(2, pass));
  }
  std::string Describe(bool stages) const override {
    return input_->Describe(stages) + (stages ? " map" : "");
  }
  bool epochs_differ() const override {
    return seed_.has_value() || input_->epochs_differ();
  }
  const BadExamples* bad_examples() const override {
    return options_.bad != nullptr ? options_.bad.get()
                                   : input_->bad_examples();
  }
  bool passes_over_batches() const override {
    return options_.bad != nullptr ? input_->batches() > 0
                                   : input_->passes_over_batches();
  }
  std::string cache_trouble() const override {
    const std::string trouble =
        options_.kept == nullptr ? "" : options_.kept->Trouble();
    return trouble.empty() ? input_->cache_trouble() : trouble;
  }
  NodePtr mapped() const override {
    return seed_ || options_.bad != nullptr ? nullptr : input_;
  }
  NodePtr MapOf(NodePtr other) const override {
    return std::make_shared<MapNode>(std::move(other), fn_, seed_, options_);
  }
  NodePtr LeaveBytes(std::vector<BytesToFloats>* left) const override {
    std::vector<BytesToFloats> before;
    NodePtr below = input_->LeaveBytes(&before);
    for (const BytesToFloats& map : before) {
      if (!Contains(options_.untouched, map.name)) return nullptr;
    }
    if (below == nullptr) return nullptr;
    left->insert(left->end(), before.begin(), before.end());
    return MapOf(std::move(below));
  }

 private:
  StreamPtr<Attempt> Attempts(const Opening& opening) const {
    const uint64_t seed = seed_.value_or(0);
    if (options_.threads == 1) {
      return std::make_unique<SerialAttempts>(input_->Open(opening), fn_, seed);
    }
    const Opening below = OnThread(opening);
    return std::make_unique<ParallelAttempts>(
        input_->Open(below), fn_, seed,
        MapThreads::Of(options_.threads, options_.max_threads), below);
  }

  const KeyedMap fn_;
  const std::optional<uint64_t> seed_;
  const MapOptions options_;
};

class RowwiseMapNode : public DerivedNode {
 public:
  RowwiseMapNode(NodePtr input, RowwiseMap map)
      : DerivedNode(std::move(input)), map_(std::move(map)) {}
  std::string stage() const override { return "map"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<RowwiseMapStream>(input_->Open(opening), map_);
  }
  NodePtr mapped() const override { return input_; }
  NodePtr MapOf(NodePtr other) const override {
    return std::make_shared<RowwiseMapNode>(std::move(other), map_);
  }
  NodePtr LeaveBytes(std::vector<BytesToFloats>* left) const override {
    if (!map_.bytes_to_floats) return nullptr;
    std::vector<BytesToFloats> before;
    NodePtr below = input_->LeaveBytes(&before);
    for (const BytesToFloats& map : before) {
      if (map.name == map_.bytes_to_floats->name) return nullptr;  // an error
    }
    left->insert(left->end(), before.begin(), before.end());
    left->push_back(*map_.bytes_to_floats);
    return below == nullptr ? input_ : below;
  }

 private:
  const RowwiseMap map_;
};

}  // namespace

Dataset Dataset::Map(std::function<void(Example&)> fn,
                     MapOptions options) const {
  RequireThreads("Map", options.threads, options.max_threads);
  KeyedMap keyed =
      PassingBy(options.untouched,
                [fn = std::move(fn)](Example& e, uint64_t /*key*/) { fn(e); });
  return Dataset(std::make_shared<MapNode>(node_, std::move(keyed),
                                           std::nullopt, std::move(options)));
}

Dataset Dataset::Map(RowwiseMap map) const {
  return Dataset(std::make_shared<RowwiseMapNode>(node_, std::move(map)));
}

Dataset Dataset::MapRandom(uint64_t seed,
                           std::function<void(Example&, uint64_t)> fn,
                           MapOptions options) const {
  RequireThreads("Map", options.threads, options.max_threads);
  KeyedMap keyed = PassingBy(options.untouched, std::move(fn));
  return Dataset(std::make_shared<MapNode>(node_, std::move(keyed), seed,
                                           std::move(options)));
}

}  // namespace sluice
