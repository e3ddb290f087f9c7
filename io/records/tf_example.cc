#include "io/records/tf_example.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/records/tf_example_wire.h"

namespace sluice {

using tf_wire::Fields;
using tf_wire::ForEach;
using tf_wire::ForEachEntry;
using tf_wire::ForEachList;
using tf_wire::kKindOf;
using tf_wire::List;
using tf_wire::ParseEntry;

Result<TfExample> TfExample::Parse(std::string_view bytes) {
  TfExample example;
  std::vector<Feature>& features = example.features_;
  const bool valid = ForEachEntry(bytes, 1, [&](std::string_view entry) {
    Feature& feature = features.emplace_back();
    feature.entry = entry;
    return ParseEntry(entry, &feature.name, [&](std::string_view value) {
      return ForEachList(value, [&](const List& list) {
        feature.kind = list.kind;
        return IsList(list);
      });
    });
  });
  if (!valid) {
    return DataLoss(
        fmt::format("these {} bytes are no tf.Example", bytes.size()));
  }
  // Of one name the last comes first, and stays.
  std::sort(features.begin(), features.end(),
            [](const Feature& a, const Feature& b) {
              if (const int order = a.name.compare(b.name)) return order < 0;
              return a.entry.data() > b.entry.data();
            });
  const auto end = std::unique(
      features.begin(), features.end(),
      [](const Feature& a, const Feature& b) { return a.name == b.name; });
  features.erase(end, features.end());
  return example;
}

namespace {

template <typename T>
void Append(const T& value, std::vector<T>* values) {
  values->push_back(value);
}
void Append(const tf_wire::FloatRun& run, std::vector<float>* values) {
  values->resize(values->size() + run.size());
  CopyFloats(run, run.size(), values->data() + values->size() - run.size());
}

}  // namespace

template <typename T>
Result<std::vector<T>> TfExample::Values(std::string_view name) const {
  const Feature* feature = Find(name);
  if (feature == nullptr) return tf_wire::NotAmong("feature", name, names());
  if (feature->kind != tf_wire::kNone && feature->kind != kKindOf<T>) {
    return tf_wire::OtherKind(name, feature->kind, kKindOf<T>);
  }
  std::vector<T> values;
  const auto add = [&](const List& list) {
    if (list.kind != kKindOf<T>) {
      values.clear();
      return true;
    }
    return ForEach(TypeTag<T>(), list.bytes,
                   [&](const auto& v) { Append(v, &values); });
  };
  Fields fields(feature->entry);
  while (fields.Next()) {
    if (fields.Is(2)) ForEachList(fields.value(), add);
  }
  return values;
}

const TfExample::Feature* TfExample::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      features_.begin(), features_.end(), name,
      [](const Feature& f, std::string_view n) { return f.name < n; });
  const bool is_there = found != features_.end() && found->name == name;
  return is_there ? &*found : nullptr;
}

bool TfExample::contains(std::string_view feature) const {
  return Find(feature) != nullptr;
}

std::vector<std::string> TfExample::names() const {
  std::vector<std::string> names;
  for (const Feature& feature : features_) names.emplace_back(feature.name);
  return names;
}

Result<std::vector<std::string_view>> TfExample::BytesList(
    std::string_view name) const {
  return Values<std::string_view>(name);
}
Result<std::vector<int64_t>> TfExample::Ints(std::string_view name) const {
  return Values<int64_t>(name);
}
Result<std::vector<float>> TfExample::Floats(std::string_view name) const {
  return Values<float>(name);
}

template <typename T>
Result<T> TfExample::Value(std::string_view name) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<T> values, Values<T>(name));
  if (values.size() == 1) return values[0];
  return InvalidArgument(fmt::format("feature '{}' holds {} {}, wanted one",
                                     name, values.size(),
                                     tf_wire::KindName(kKindOf<T>)));
}

Result<std::string_view> TfExample::Bytes(std::string_view name) const {
  return Value<std::string_view>(name);
}
Result<int64_t> TfExample::Int(std::string_view name) const {
  return Value<int64_t>(name);
}

}  // namespace sluice
