// In what two checkpoints differ.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "io/files/without_query.h"

namespace sluice::tool {
namespace {

// ---- Values of one dtype and shape.

struct ValueDifference {
  int64_t count = 0;   // elements that differ
  double largest = 0;  // absolute difference
  int64_t at = 0;      // its index in the flat array
};

// NaN is NaN, whatever its bits, and -0 is 0.
template <typename X>
inline bool Same(X a, X b) {
  if constexpr (std::is_floating_point_v<X>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return a == b;
}

// Infinite between NaN and a number.
template <typename X>
inline double Distance(X a, X b) {
  if constexpr (std::is_floating_point_v<X>) {
    const double distance =
        std::abs(static_cast<double>(a) - static_cast<double>(b));
    return std::isnan(distance) ? std::numeric_limits<double>::infinity()
                                : distance;
  } else {
    // As integers: doubles are equal for neighbours beyond 2^53. Without a
    // sign, as the distance of two int64 may overflow one.
    return static_cast<double>(static_cast<uint64_t>(std::max(a, b)) -
                               static_cast<uint64_t>(std::min(a, b)));
  }
}

ValueDifference CompareValues(const Tensor& first, const Tensor& second) {
  return DispatchDType(first.dtype(), [&]<typename T>(TypeTag<T>) {
    using X = ComputeType<T>;
    const T* a = first.data<T>();
    const T* b = second.data<T>();
    ValueDifference result;
    for (int64_t i = 0; i < first.elements(); ++i) {
      const auto x = static_cast<X>(a[i]);
      const auto y = static_cast<X>(b[i]);
      if (Same(x, y)) continue;
      const double distance = Distance(x, y);
      if (result.count++ == 0 || distance > result.largest) {
        result.largest = distance;
        result.at = i;
      }
    }
    return result;
  });
}

// The index in each dimension of element `flat`.
std::vector<int64_t> IndexOf(int64_t flat, const Shape& shape) {
  std::vector<int64_t> index(shape.rank());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return index;
}

// ---- Tensors and metadata.

// What each file has under one name; null where it has nothing.
template <typename T>
struct InBoth {
  const T* first = nullptr;
  const T* second = nullptr;
};

using TensorPairs = std::map<std::string, InBoth<TensorFile::Item>>;
using MetadataPairs = std::map<std::string, InBoth<std::string>>;

// For people and for programs.
struct Difference {
  std::string text;
  Json json;
};

Difference DTypeOrShape(const TensorFile::Item& a, const TensorFile::Item& b) {
  return {
      fmt::format("{}{} in the first file, {}{} in the second", NameOf(a.dtype),
                  a.shape.ToString(), NameOf(b.dtype), b.shape.ToString()),
      {{"tensor", a.name},
       {"differs", a.dtype != b.dtype ? "dtype" : "shape"},
       {"dtypes", Json::Array({NameOf(a.dtype), NameOf(b.dtype)})},
       {"shapes", Json::Array({a.shape.dims(), b.shape.dims()})}}};
}

Difference Values(const TensorFile::Item& tensor, const ValueDifference& d) {
  const std::vector<int64_t> at = IndexOf(d.at, tensor.shape);
  const int64_t elements = tensor.shape.elements();
  Difference difference = {
      fmt::format("{} of {} elements differ, most by {:.5g} at [{}]", d.count,
                  elements, d.largest, fmt::join(at, ",")),
      {{"tensor", tensor.name},
       {"differs", "values"},
       {"differing", d.count},
       {"elements", elements},
       {"at", at}}};
  // JSON has no infinity.
  if (std::isfinite(d.largest)) difference.json["largest"] = d.largest;
  return difference;
}

std::optional<Difference> DifferenceOf(const InBoth<TensorFile::Item>& pair) {
  if (pair.second == nullptr) {
    return Difference{
        "only in the first file",
        {{"tensor", pair.first->name}, {"differs", "only_in_first"}}};
  }
  if (pair.first == nullptr) {
    return Difference{
        "only in the second file",
        {{"tensor", pair.second->name}, {"differs", "only_in_second"}}};
  }
  const TensorFile::Item& a = *pair.first;
  const TensorFile::Item& b = *pair.second;
  if (a.dtype != b.dtype || !(a.shape == b.shape)) return DTypeOrShape(a, b);
  if (!a.values || a.values->BitEqual(*b.values)) return std::nullopt;
  const ValueDifference values = CompareValues(*a.values, *b.values);
  if (values.count == 0) return std::nullopt;
  return Values(a, values);
}

std::optional<Difference> DifferenceOf(const std::string& key,
                                       const InBoth<std::string>& pair) {
  const auto [first, second] = pair;
  if (first && second && *first == *second) return std::nullopt;
  Difference difference;
  difference.json = {{"metadata", key}};
  if (first) difference.json["first"] = *first;
  if (second) difference.json["second"] = *second;
  if (!first || !second) {
    const std::string* const only = first ? first : second;
    difference.text =
        fmt::format("{} only in the {} file", Shortened(only ? *only : ""),
                    first ? "first" : "second");
    return difference;
  }
  // Long ones begin shortly before what differs.
  const auto same =
      static_cast<size_t>(std::mismatch(first->begin(), first->end(),
                                        second->begin(), second->end())
                              .first -
                          first->begin());
  const auto excerpt = [&](const std::string& text) {
    if (same < 60) return Shortened(text);
    return "..." + Shortened(text.substr(same - 20));
  };
  difference.text = fmt::format("{} in the first file, {} in the second",
                                excerpt(*first), excerpt(*second));
  return difference;
}

// ---- Whole files.

struct Summary {
  size_t tensors = 0;  // names in either file
  size_t metadata = 0;
  size_t differing_tensors = 0;
  size_t differing_metadata = 0;

  bool equal() const { return differing_tensors + differing_metadata == 0; }
};

Summary PrintDifferences(const TensorFile& first, const TensorFile& second,
                         bool json) {
  TensorPairs tensors;
  for (const auto& item : first.tensors) tensors[item.name].first = &item;
  for (const auto& item : second.tensors) tensors[item.name].second = &item;
  MetadataPairs metadata;
  for (const auto& [key, value] : first.metadata) metadata[key].first = &value;
  for (const auto& [key, value] : second.metadata) {
    metadata[key].second = &value;
  }
  Summary summary{tensors.size(), metadata.size()};
  for (const auto& [name, pair] : tensors) {
    const auto difference = DifferenceOf(pair);
    if (!difference) continue;
    ++summary.differing_tensors;
    json ? PrintJson(difference->json)
         : fmt::print("{}: {}\n", Printable(name), difference->text);
  }
  for (const auto& [key, pair] : metadata) {
    const auto difference = DifferenceOf(key, pair);
    if (!difference) continue;
    ++summary.differing_metadata;
    json ? PrintJson(difference->json)
         : fmt::print("metadata {}: {}\n", Printable(key), difference->text);
  }
  return summary;
}

void PrintSummary(const Summary& s, bool quick) {
  const char* limit = quick ? "; values were not compared" : "";
  if (s.equal()) {
    fmt::print("equal: all {} tensors and the metadata{}\n", s.tensors, limit);
  } else {
    fmt::print("{} of {} tensors differ, {} of {} metadata keys{}\n",
               s.differing_tensors, s.tensors, s.differing_metadata, s.metadata,
               limit);
  }
}

TensorFile Read(const std::string& path, bool quick) {
  if (!IsSafetensors(path)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}': only safetensors files can be compared, "
                            "this is none",
                            WithoutQuery(path)));
  }
  return (quick ? ReadHeaderOnly(path) : ReadVerified(path)).ValueOrThrow();
}

}  // namespace

bool Compare(const std::string& first, const std::string& second, bool quick,
             bool json) {
  const TensorFile a = Read(first, quick);
  const TensorFile b = Read(second, quick);
  const Summary summary = PrintDifferences(a, b, json);
  if (json) {
    PrintJson({{"files", Json::Array({first, second})},
               {"equal", summary.equal()},
               {"values_compared", !quick},
               {"tensors", summary.tensors},
               {"differing_tensors", summary.differing_tensors},
               {"metadata_keys", summary.metadata},
               {"differing_metadata_keys", summary.differing_metadata}});
  } else {
    PrintSummary(summary, quick);
  }
  return summary.equal();
}

}  // namespace sluice::tool
