// Sources of the user's own, and datasets made of several.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "io/pipeline/combined_streams.h"
#include "io/pipeline/dataset_node.h"
#include "io/pipeline/filter_stream.h"
#include "io/sources/datasets.h"

namespace sluice {

int64_t Generator::Skip(int64_t n) {
  Example example;
  for (int64_t i = 0; i < n; ++i) {
    if (!Next(&example)) return i;
  }
  return n;
}

namespace datasets {
namespace {

class GeneratorStream : public Stream<Example> {
 public:
  using Make = std::function<std::unique_ptr<Generator>(uint64_t epoch)>;
  GeneratorStream(Make make, bool endless)
      : make_(std::move(make)), endless_(endless) {}
  Status StartEpoch(uint64_t epoch) override {
    at_ = 0;
    ended_ = false;
    generator_.reset();
    SLUICE_RETURN_IF_ERROR(CatchErrors([&] { generator_ = make_(epoch); }));
    if (generator_ != nullptr) return {};
    return InvalidArgument("FromGenerator: there is no generator, but a null");
  }
  Result<bool> Next(Example* example) override {
    if (ended_) return false;
    bool more = false;
    *example = {};
    SLUICE_RETURN_IF_ERROR(
        CatchErrors([&] { more = generator_->Next(example); }));
    SLUICE_RETURN_IF_ERROR(Count(more ? 1 : 0, 1));
    return more;
  }
  Result<int64_t> Skip(int64_t n) override {
    if (ended_ || n == 0) return 0;
    int64_t passed = 0;
    SLUICE_RETURN_IF_ERROR(CatchErrors([&] { passed = generator_->Skip(n); }));
    SLUICE_RETURN_IF_ERROR(Count(passed, n));
    return passed;
  }
  void Save(Mark* mark) const override { mark->push_back(at_); }
  Status Restore(MarkReader* mark) override {
    SLUICE_ASSIGN_OR_RETURN(const int64_t at, mark->Next());
    return SkipAll(this, at);
  }

 private:
  // Of those that were wanted, so many came.
  Status Count(int64_t got, int64_t wanted) {
    if (got < 0 || got > wanted) {
      return InvalidArgument(
          fmt::format("a generator was to skip {} examples, and says it has {}",
                      wanted, got));
    }
    at_ += got;
    ended_ = got < wanted;
    if (!ended_ || !endless_) return {};
    return DataLoss(fmt::format(
        "the generator ended behind {} examples, but was said not to", at_));
  }

  const Make make_;
  const bool endless_;
  std::unique_ptr<Generator> generator_;
  int64_t at_ = 0;
  bool ended_ = false;
};

class GeneratorNode : public DatasetNode {
 public:
  GeneratorNode(GeneratorStream::Make make, GeneratorOptions options)
      : make_(std::move(make)), options_(std::move(options)) {}
  std::string stage() const override { return "generator"; }
  StreamPtr<Example> OpenStream(const Opening& /*opening*/) const override {
    auto stream =
        std::make_unique<GeneratorStream>(make_, options_.size == kInfinite);
    if (options_.size < 0) return stream;
    return std::make_unique<ExpectSizeStream>(std::move(stream), options_.size);
  }
  int64_t cardinality() const override { return options_.size; }
  int64_t examples_per_epoch() const override { return options_.size; }
  std::string Describe(bool /*stages*/) const override {
    return fmt::format("{}[{}]", options_.identity, options_.size);
  }
  bool epochs_differ() const override { return !options_.same_in_every_epoch; }

 private:
  const GeneratorStream::Make make_;
  const GeneratorOptions options_;
};

using Nodes = std::vector<NodePtr>;

Nodes NodesOf(std::span<const Dataset> inputs, std::string_view who) {
  Require(!inputs.empty(), who, 0, "one dataset at least");
  Nodes nodes;
  for (const Dataset& input : inputs) {
    RequireExamples(*input.node(), who);
    nodes.push_back(input.node());
  }
  return nodes;
}

// Numbers that may be kInfinite or kUnknownCardinality.
int64_t Least(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kInfinite) return b;
  if (b == kInfinite) return a;
  return std::min(a, b);  // kUnknownCardinality is the least
}

int64_t Sum(int64_t a, int64_t b) {
  if (a == kInfinite || b == kInfinite) return kInfinite;
  if (a < 0 || b < 0) return kUnknownCardinality;
  return a > INT64_MAX - b ? INT64_MAX : a + b;
}

// A step of several inputs. `number` makes how many there are of how many two
// inputs have.
class CombinedNode : public DatasetNode {
 public:
  CombinedNode(const char* name, Nodes inputs,
               int64_t (*number)(int64_t, int64_t))
      : inputs_(std::move(inputs)), name_(name), number_(number) {}
  int64_t cardinality() const override {
    return Over([](const DatasetNode& node) { return node.cardinality(); });
  }
  int64_t examples_per_epoch() const override {
    // An input that repeats so many times is read to its end within one pass of
    // all, and its elements are examples: none comes behind Batch.
    if (const int64_t all = cardinality(); all >= 0) return all;
    return Over(
        [](const DatasetNode& node) { return node.examples_per_epoch(); });
  }
  std::string Describe(bool stages) const override {
    std::string text = std::string(name_) + "(";
    for (size_t i = 0; i < inputs_.size(); ++i) {
      text += (i == 0 ? "" : " | ") + inputs_[i]->Describe(stages);
    }
    return text + ")";
  }
  bool epochs_differ_in_size() const override {
    return std::any_of(inputs_.begin(), inputs_.end(), [](const NodePtr& node) {
      return node->epochs_differ_in_size();
    });
  }
  std::string cache_trouble() const override {
    for (const NodePtr& input : inputs_) {
      if (std::string trouble = input->cache_trouble(); !trouble.empty()) {
        return trouble;
      }
    }
    return "";
  }
  bool counted() const override {
    return std::all_of(inputs_.begin(), inputs_.end(),
                       [](const NodePtr& node) { return node->counted(); });
  }
  bool epochs_differ() const override {
    return std::any_of(inputs_.begin(), inputs_.end(), [](const NodePtr& node) {
      return node->epochs_differ();
    });
  }

 protected:
  Streams OpenAll(const Opening& opening) const {
    Streams streams;
    Opening below = AllNeeded(opening);
    for (const NodePtr& input : inputs_) {
      streams.push_back(input->Open(below));
      ++below.input;
    }
    return streams;
  }
  const Nodes inputs_;

 private:
  template <typename Fn>
  int64_t Over(const Fn& fn) const {
    int64_t number = fn(*inputs_[0]);
    for (size_t i = 1; i < inputs_.size(); ++i) {
      number = number_(number, fn(*inputs_[i]));
    }
    return number;
  }
  const char* const name_;
  int64_t (*const number_)(int64_t, int64_t);
};

class ZipNode : public CombinedNode {
 public:
  explicit ZipNode(Nodes inputs)
      : CombinedNode("zip", std::move(inputs), Least) {}
  std::string stage() const override { return "zip"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<ZipStream>(OpenAll(opening));
  }
};

class ConcatenateNode : public CombinedNode {
 public:
  explicit ConcatenateNode(Nodes inputs)
      : CombinedNode("concatenate", std::move(inputs), Sum) {}
  std::string stage() const override { return "concatenate"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<ConcatenateStream>(OpenAll(opening));
  }
};

class ChooseNode : public CombinedNode {
 public:
  ChooseNode(Nodes inputs, std::vector<double> weights, uint64_t seed)
      : CombinedNode("choose", std::move(inputs), Sum),
        weights_(std::move(weights)),
        seed_(seed) {}
  std::string stage() const override { return "choose"; }
  StreamPtr<Example> OpenStream(const Opening& opening) const override {
    return std::make_unique<ChooseStream>(OpenAll(opening), weights_, seed_);
  }
  std::string Describe(bool stages) const override {
    return fmt::format("{}({};{})", CombinedNode::Describe(stages),
                       fmt::join(weights_, ","), seed_);
  }
  bool counted() const override { return false; }
  bool epochs_differ() const override { return true; }

 private:
  const std::vector<double> weights_;
  const uint64_t seed_;
};

}  // namespace

Dataset FromFunction(int64_t n, std::function<Example(int64_t)> fn,
                     std::string identity, int threads) {
  Require(n >= 0, "FromFunction", n, "a number of examples");
  Tensor numbers(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) numbers.data<int64_t>()[i] = i;
  return FromTensors({{"number", std::move(numbers)}}, std::move(identity))
      .Map([fn = std::move(fn)](
               Example& example) { example = fn(example["number"].IntAt(0)); },
           {.threads = threads, .name = "function"});
}

Dataset FromGenerator(
    std::function<std::unique_ptr<Generator>(uint64_t epoch)> make,
    GeneratorOptions options) {
  Require(options.size >= kUnknownCardinality, "FromGenerator", options.size,
          "a number of examples, kInfinite or kUnknownCardinality");
  return Dataset(
      std::make_shared<GeneratorNode>(std::move(make), std::move(options)));
}

Dataset Zip(std::span<const Dataset> inputs) {
  return Dataset(std::make_shared<ZipNode>(NodesOf(inputs, "Zip")));
}

Dataset Concatenate(std::span<const Dataset> inputs) {
  return Dataset(
      std::make_shared<ConcatenateNode>(NodesOf(inputs, "Concatenate")));
}

Dataset Choose(std::span<const Dataset> inputs, std::span<const double> weights,
               uint64_t seed) {
  Nodes nodes = NodesOf(inputs, "Choose");
  Require(weights.size() == nodes.size(), "Choose",
          static_cast<int64_t>(weights.size()),
          fmt::format("{} weights, one for each dataset", nodes.size()));
  double sum = 0;
  for (const double weight : weights) {
    sum += weight;
    if (!(weight > 0) || !std::isfinite(sum)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("Choose: got the weight {}, wanted positive ones",
                              weight));
    }
  }
  return Dataset(std::make_shared<ChooseNode>(
      std::move(nodes), std::vector(weights.begin(), weights.end()), seed));
}

}  // namespace datasets
}  // namespace sluice
