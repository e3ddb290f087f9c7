#include "io/records/tf_sequence_example.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "engine/catch_errors.h"
#include "io/records/tf_example_column.h"
#include "io/records/tf_example_wire.h"

namespace sluice {
namespace {

using tf_wire::ColumnNames;
using tf_wire::FeatureColumn;
using tf_wire::Fields;
using tf_wire::List;

// The feature lists that are wanted, each a column with a row a step.
class FeatureLists {
 public:
  explicit FeatureLists(std::span<const FeatureSpec> specs)
      : specs_(specs), names_(specs), wanted_(specs.size()) {}

  // An error for what is wanted.
  Status Start() {
    for (size_t i = 0; i < specs_.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(wanted_[i].column,
                              FeatureColumn::Make(specs_[i]));
      SLUICE_RETURN_IF_ERROR(wanted_[i].column->Start(0));
    }
    return {};
  }
  // False where the bytes are no tf.SequenceExample.
  bool Parse(std::string_view bytes) {
    return tf_wire::ForEachEntry(
        bytes, 2, [this](std::string_view entry) { return AddEntry(entry); });
  }
  Status Take(Example* example) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const std::string& name = specs_[i].name;
      const Wanted& list = wanted_[i];
      if (!list.found && !specs_[i].missing) {
        return tf_wire::NotAmong("feature list", name, Names());
      }
      SLUICE_RETURN_IF_ERROR(list.status);
      Tensor tensor;
      SLUICE_RETURN_IF_ERROR(list.column->Take(&tensor));
      example->Set(name, std::move(tensor));
    }
    return {};
  }

 private:
  struct Wanted {
    std::unique_ptr<FeatureColumn> column;
    bool found = false;
    Status status;  // of its last entry, which counts
  };

  bool AddEntry(std::string_view entry) {
    std::string_view name;
    std::vector<std::string_view> steps;
    const auto add = [&](std::string_view list) {
      return AddSteps(list, &steps);
    };
    if (!tf_wire::ParseEntry(entry, &name, add)) return false;
    seen_.push_back(name);
    size_t i = names_.Find(name, seen_.size() - 1);
    for (; i != ColumnNames::kNoColumn; i = names_.Next(i)) {
      wanted_[i].found = true;
      wanted_[i].status = SetRows(steps, wanted_[i].column.get());
    }
    return true;
  }
  std::vector<std::string> Names() const {
    const std::set<std::string_view> names(seen_.begin(), seen_.end());
    return {names.begin(), names.end()};
  }
  static bool AddSteps(std::string_view list,
                       std::vector<std::string_view>* steps) {
    Fields fields(list);
    while (fields.Next()) {
      if (!fields.Is(1)) continue;
      if (!tf_wire::ForEachList(fields.value(), tf_wire::IsList)) return false;
      steps->push_back(fields.value());
    }
    return fields.ok();
  }
  // The features can be read.
  static Status SetRows(const std::vector<std::string_view>& features,
                        FeatureColumn* column) {
    SLUICE_RETURN_IF_ERROR(
        column->Start(static_cast<int64_t>(features.size())));
    std::vector<List> lists;
    for (size_t i = 0; i < features.size(); ++i) {
      lists.clear();
      tf_wire::ForEachList(features[i], [&](const List& list) {
        lists.push_back(list);
        return true;
      });
      SLUICE_CHECK(column->SetRow(lists));
      const Status status = column->EndRow();
      if (!status.ok()) return status.WithContext(fmt::format("step {}", i));
    }
    return {};
  }

  const std::span<const FeatureSpec> specs_;
  ColumnNames names_;
  std::vector<Wanted> wanted_;
  std::vector<std::string_view> seen_;  // names of lists
};

Status CheckNames(std::span<const FeatureSpec> context,
                  std::span<const FeatureSpec> lists) {
  for (const FeatureSpec& spec : lists) {
    const bool twice =
        std::any_of(context.begin(), context.end(),
                    [&](const FeatureSpec& c) { return c.name == spec.name; });
    if (twice) {
      return InvalidArgument(fmt::format(
          "'{}' is wanted both of the context and of the feature lists",
          spec.name));
    }
  }
  return {};
}

}  // namespace

Result<Example> ParseTfSequenceExample(std::string_view bytes,
                                       std::span<const FeatureSpec> context,
                                       std::span<const FeatureSpec> lists) {
  SLUICE_RETURN_IF_ERROR(CheckNames(context, lists));
  return CatchErrors([&]() -> Result<Example> {
    FeatureLists parsed(lists);
    SLUICE_RETURN_IF_ERROR(parsed.Start());
    // The context has the number that tf.Example's features have, which passes
    // over the lists.
    Result<Example> example = ParseTfExample(bytes, context);
    const bool damaged = example.status().code() == Code::kDataLoss;
    if (damaged || !parsed.Parse(bytes)) {
      return DataLoss(fmt::format("these {} bytes are no tf.SequenceExample",
                                  bytes.size()));
    }
    if (!example.ok()) return example;
    SLUICE_RETURN_IF_ERROR(parsed.Take(&*example));
    return example;
  });
}

}  // namespace sluice
