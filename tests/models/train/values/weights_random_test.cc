// Files of weights for random networks, ours and PyTorch's, in all floating
// dtypes: what variables hold afterwards beside a loop that writes each file
// element by element.
#include "models/train/values/weights_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <set>

#include "graph/builder.h"
#include "models/nn/layers.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::TemporaryFolder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n));
  }
  bool Chance(int64_t percent) { return Below(100) < percent; }
  uint64_t Bits() { return uint64_t{engine_()} << 32 | engine_(); }
  template <typename T>
  const T& Of(const std::vector<T>& choices) {
    return choices[Below(static_cast<int64_t>(choices.size()))];
  }

 private:
  std::mt19937 engine_;
};

// --- Numbers -----------------------------------------------------------------

// What 16 bits with so many of exponent stand for, NaN aside.
double Decoded(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int top = (1 << exponent_bits) - 1, bias = top / 2;
  const int exponent = bits >> mantissa_bits & top;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == top) return sign * kInfinity;
  const double one = exponent == 0 ? 0 : 1 << mantissa_bits;
  return sign * std::ldexp(one + mantissa,
                           std::max(exponent, 1) - bias - mantissa_bits);
}

// The float32 nearest to x, of two as near the one whose last bit is 0, by
// rounding to a multiple of its distance there.
double Nearest(double x) {
  if (x == 0 || std::isinf(x)) return x;
  const int exponent = std::max(std::ilogb(x), -126);
  const double scaled = std::ldexp(x, 23 - exponent);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0)) whole += 1;
  return std::copysign(std::ldexp(whole, exponent - 23), x);  // also 0
}

// A random element of the tensor, written at `at`; returns what a variable of
// the dtype must hold for it.
double Put(Random& random, Tensor* tensor, int64_t at, DType variable) {
  if (IsHalf(tensor->dtype())) {
    const bool half = tensor->dtype() == DType::kFloat16;
    auto bits = static_cast<uint16_t>(random.Bits());
    const int infinity = half ? 0x7c00 : 0x7f80;
    if ((bits & infinity) == infinity) bits &= 0x8000 | infinity;  // no NaN
    static_cast<uint16_t*>(tensor->raw())[at] = bits;
    return Decoded(bits, half ? 5 : 8);
  }
  // 53 random bits, or few beyond those of float32: ties.
  double x = static_cast<double>(random.Bits() >> 11) * 0x1p-52 - 1;
  if (random.Chance(50)) x = std::round(x * 0x1p25) * 0x1p-25;
  if (random.Chance(20)) x *= 0x1p-128;  // subnormal in float32
  if (random.Chance(5)) x = random.Chance(50) ? kInfinity : 0;
  if (tensor->dtype() == DType::kFloat32) {
    x = Nearest(x);
    tensor->data<float>()[at] = static_cast<float>(x);
    return x;
  }
  tensor->data<double>()[at] = x;
  return variable == DType::kFloat32 ? Nearest(x) : x;
}

// --- Networks ----------------------------------------------------------------

// A graph with random layers, each of an input of its own.
struct Network {
  Graph graph;
  std::vector<Output> variables;
  std::unique_ptr<Session> session;

  explicit Network(Random& random) {
    const DType dtype = random.Chance(80) ? DType::kFloat32 : DType::kFloat64;
    const int64_t layers = 1 + random.Below(6);
    for (int64_t i = 0; i < layers; ++i) {
      Scope scope(graph);
      // Names that a wrapper's prefix could be taken for, too.
      for (int64_t depth = random.Below(3); depth > 0; --depth) {
        scope = scope / random.Of<std::string>({"model", "block", "module"});
      }
      AddLayer(random, scope / fmt::format("part{}", i), dtype);
    }
    variables = graph.Variables();
    session = std::make_unique<Session>(graph);
    session->Initialize();
  }

  std::vector<Tensor> Values() const {
    std::vector<Tensor> values;
    for (const Output& v : variables) values.push_back(session->Read(v));
    return values;
  }

 private:
  void AddLayer(Random& random, const Scope& scope, DType dtype) {
    const auto size = [&] { return 1 + random.Below(5); };
    const int64_t channels = size();
    const Output image =
        graph.Placeholder("image", dtype, {kUnknown, 8, 8, channels});
    const Output row = graph.Placeholder("row", dtype, {kUnknown, channels});
    switch (random.Below(5)) {
      case 0:
        layers::Conv2D(scope, image,
                       {.filters = channels * size(),
                        .kernel = {size(), size()},
                        .groups = random.Chance(30) ? channels : 1,
                        .use_bias = random.Chance(50)});
        return;
      case 1:
        layers::Dense(scope, row,
                      {.units = size(), .use_bias = random.Chance(50)});
        return;
      case 2:
        layers::BatchNorm(scope, random.Chance(50) ? image : row);
        return;
      case 3:
        // Often as many rows as columns.
        layers::Embedding(
            scope, graph.Placeholder("ids", DType::kInt64, {kUnknown}),
            {.size = channels,
             .dimensions = random.Chance(50) ? channels : size()});
        return;
      default:
        layers::LayerNorm(scope, row);
    }
  }
};

// --- Files -------------------------------------------------------------------

std::string TheirName(const std::string& ours) {
  std::string name;
  for (const char c : ours) name += c == '/' ? '.' : c;
  const auto end = [&](const std::string& old, const std::string& now) {
    if (!name.ends_with("." + old)) return false;
    name = name.substr(0, name.size() - old.size()) + now;
    return true;
  };
  if (end("weights", "weight") || end("table", "weight") ||
      end("scale", "weight") || end("offset", "bias")) {
    return name;
  }
  end("running_variance", "running_var");
  return name;
}

// Whose matrix PyTorch has as it is.
bool IsEmbedding(const Output& variable) {
  return variable.name().ends_with("/table");
}

// PyTorch's dimensions: [out, in] and [out, in, height, width].
Shape TheirShape(const Output& variable) {
  const Shape& s = variable.shape();
  if (IsEmbedding(variable)) return s;
  if (s.rank() == 2) return {s[1], s[0]};
  if (s.rank() == 4) return {s[3], s[2], s[0], s[1]};
  return s;
}

// The element of PyTorch's tensor that is element i of ours.
int64_t TheirIndex(const Output& variable, int64_t i) {
  const Shape& s = variable.shape();
  if (IsEmbedding(variable)) return i;
  if (s.rank() == 2) return i % s[1] * s[0] + i / s[1];
  if (s.rank() != 4) return i;
  const int64_t out = i % s[3], in = i / s[3] % s[2];
  const int64_t w = i / (s[3] * s[2]) % s[1], h = i / (s[3] * s[2] * s[1]);
  return ((out * s[2] + in) * s[0] + h) * s[1] + w;
}

// The tensors of a file and what they stand for.
struct Content {
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<double>> wanted;  // by variable, element
  int64_t converted = 0;
};

Content MakeContent(Random& random, const std::vector<Output>& variables,
                    bool theirs) {
  Content content;
  for (const Output& variable : variables) {
    const Shape& shape = variable.shape();
    const auto dtype = random.Of<DType>(
        {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16});
    NamedTensor t{theirs ? TheirName(variable.name()) : variable.name(),
                  Tensor(dtype, theirs ? TheirShape(variable) : shape)};
    std::vector<double> wanted(shape.elements());
    for (int64_t i = 0; i < shape.elements(); ++i) {
      wanted[i] = Put(random, &t.tensor, theirs ? TheirIndex(variable, i) : i,
                      variable.dtype());
    }
    content.tensors.push_back(std::move(t));
    content.wanted.push_back(std::move(wanted));
    content.converted += dtype != variable.dtype();
  }
  return content;
}

// What a file may have beside the variables' values.
void AddOthers(Random& random, const std::vector<Output>& variables,
               bool theirs, std::vector<NamedTensor>* tensors) {
  if (!theirs) tensors->push_back({"global_step", Tensor::Scalar<int64_t>(3)});
  for (const Output& variable : variables) {
    const std::string& name = variable.name();
    if (!theirs && random.Chance(30)) {
      tensors->push_back({name + "/velocity", Tensor::Scalar(1.0f)});
    }
    if (theirs && name.ends_with("running_mean")) {
      const std::string scope = name.substr(0, name.rfind('/'));
      tensors->push_back({TheirName(scope) + ".num_batches_tracked",
                          Tensor::Scalar<int64_t>(7)});
    }
  }
}

std::string Prefix(Random& random) {
  std::string prefix;
  for (int64_t n = random.Below(4); n > 0; --n) {
    prefix += random.Of<std::string>({"module.", "model.", "_orig_mod."});
  }
  return prefix;
}

// --- Reset -------------------------------------------------------------------

// Patterns of all kinds, and the names they match.
struct Reset {
  std::string patterns;
  std::set<std::string> names;
};

Reset MakeReset(Random& random, const std::vector<Output>& variables) {
  Reset reset;
  for (int64_t n = random.Below(3); n > 0; --n) {
    std::string pattern = random.Of(variables).name();
    std::function<bool(const std::string&)> matches;
    const std::string scope = pattern.substr(0, pattern.rfind('/') + 1);
    const std::string last = pattern.substr(pattern.rfind('/') + 1);
    switch (random.Below(4)) {
      case 0:
        matches = [pattern](const std::string& s) { return s == pattern; };
        break;
      case 1:
        pattern = scope + "*";
        matches = [scope](const std::string& s) {
          return s.starts_with(scope);
        };
        break;
      case 2:
        pattern = "*" + last;
        matches = [last](const std::string& s) { return s.ends_with(last); };
        break;
      default: {
        const size_t at = random.Below(static_cast<int64_t>(pattern.size()));
        pattern[at] = '?';
        matches = [pattern, at](std::string s) {
          if (at < s.size()) s[at] = '?';
          return s == pattern;
        };
      }
    }
    for (const Output& variable : variables) {
      if (matches(variable.name())) reset.names.insert(variable.name());
    }
    reset.patterns += (reset.patterns.empty() ? "" : ",") + pattern;
  }
  return reset;
}

// The file has some of their tensors, some of another shape or dtype.
void SpoilReset(Random& random, const Reset& reset, bool theirs,
                std::vector<NamedTensor>* tensors) {
  std::set<std::string> names;
  for (const std::string& name : reset.names) {
    names.insert(theirs ? TheirName(name) : name);
  }
  for (NamedTensor& t : *tensors) {
    if (!names.contains(t.name) || random.Chance(25)) continue;
    if (random.Chance(50)) {
      t.tensor = Tensor::Zeros(DType::kFloat32, {3, 1, 4});
    } else if (random.Chance(50)) {
      t.tensor = Tensor::Zeros(DType::kInt32, t.tensor.shape());
    } else {
      t.name.clear();
    }
  }
  std::erase_if(*tensors, [](const auto& t) { return t.name.empty(); });
}

// --- Right files -------------------------------------------------------------

TEST_CASE("random networks have exactly the values of random files") {
  TemporaryFolder folder;
  const std::string path = folder / "weights.safetensors";
  int resets = 0, wrapped = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Network network(random);
    const std::vector<Tensor> before = network.Values();
    const bool theirs = random.Chance(60);
    Content content = MakeContent(random, network.variables, theirs);
    const Reset reset = MakeReset(random, network.variables);
    int64_t converted = content.converted;
    for (size_t i = 0; i < network.variables.size(); ++i) {
      const Output& variable = network.variables[i];
      if (!reset.names.contains(variable.name())) continue;
      converted -= content.tensors[i].tensor.dtype() != variable.dtype();
    }
    SpoilReset(random, reset, theirs, &content.tensors);
    AddOthers(random, network.variables, theirs, &content.tensors);
    const std::string prefix = Prefix(random);
    for (NamedTensor& t : content.tensors) t.name = prefix + t.name;
    CAPTURE(prefix);
    CAPTURE(reset.patterns);
    REQUIRE(WriteSafetensors(path, content.tensors, {{"format", "pt"}}).ok());

    const Result<LoadedWeights> loaded = LoadWeightsWith(
        *network.session, network.variables, path, {.reset = reset.patterns});
    REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
    CHECK(std::set(loaded->reset.begin(), loaded->reset.end()) == reset.names);
    CHECK(loaded->tensors ==
          static_cast<int64_t>(before.size() - reset.names.size()));
    CHECK(loaded->converted == converted);
    resets += !reset.names.empty();
    wrapped += !prefix.empty();
    const std::vector<Tensor> after = network.Values();
    for (size_t i = 0; i < after.size(); ++i) {
      const std::string name = network.variables[i].name();
      CAPTURE(name);
      if (reset.names.contains(name)) {
        CHECK(after[i].BitEqual(before[i]));
        continue;
      }
      int64_t wrong = 0;
      for (int64_t e = 0; e < after[i].elements(); ++e) {
        const double x = after[i].At(e), w = content.wanted[i][e];
        wrong += x != w || std::signbit(x) != std::signbit(w);
      }
      CHECK(wrong == 0);
    }
  }
  CHECK(resets > 100);
  CHECK(wrapped > 100);
}

}  // namespace
}  // namespace sluice
