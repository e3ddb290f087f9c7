// The tensors of tf.Examples.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "engine/catch_errors.h"
#include "io/records/tf_example.h"
#include "io/records/tf_example_column.h"
#include "io/records/tf_example_wire.h"

namespace sluice {
namespace {

using tf_wire::ColumnNames;
using tf_wire::FeatureColumn;
using tf_wire::List;

// The columns of a batch, filled example by example.
class Columns {
 public:
  explicit Columns(std::span<const FeatureSpec> features)
      : features_(features), names_(features) {}

  // `examples` will come; without it, one, whose tensors have no dimension for
  // them.
  Status Start(std::optional<int64_t> examples) {
    for (const FeatureSpec& spec : features_) {
      SLUICE_ASSIGN_OR_RETURN(auto column, FeatureColumn::Make(spec));
      SLUICE_RETURN_IF_ERROR(column->Start(examples));
      columns_.push_back(std::move(column));
    }
    return {};
  }

  Status Add(std::string_view example) {
    size_t position = 0;
    const bool valid = tf_wire::ForEachEntry(
        example, 1,
        [&](std::string_view entry) { return AddEntry(entry, position++); });
    // Of the one or the other the parsed example knows what to say.
    if (!valid) return TfExample::Parse(example).status();
    for (const auto& column : columns_) {
      Status status = column->EndRow();
      if (status.ok()) continue;
      if (status.code() != Code::kNotFound) return status;
      return TfExample::Parse(example)
          ->BytesList(features_[&column - columns_.data()].name)
          .status();
    }
    return {};
  }

  Result<Example> Take() {
    Example example;
    for (size_t i = 0; i < columns_.size(); ++i) {
      Tensor tensor;
      SLUICE_RETURN_IF_ERROR(columns_[i]->Take(&tensor));
      example.Set(features_[i].name, std::move(tensor));
    }
    return example;
  }

 private:
  // The name may come after the lists, so they are kept until the entry ends.
  bool AddEntry(std::string_view entry, size_t position) {
    lists_.clear();
    std::string_view name;
    const auto keep = [this](const List& list) {
      lists_.push_back(list);
      return true;
    };
    const auto keep_all = [&](std::string_view feature) {
      return tf_wire::ForEachList(feature, keep);
    };
    if (!tf_wire::ParseEntry(entry, &name, keep_all)) return false;
    size_t column = names_.Find(name, position);
    if (column == ColumnNames::kNoColumn) {
      return std::all_of(lists_.begin(), lists_.end(), tf_wire::IsList);
    }
    for (; column != ColumnNames::kNoColumn; column = names_.Next(column)) {
      if (!columns_[column]->SetRow(lists_)) return false;
    }
    return true;
  }

  const std::span<const FeatureSpec> features_;
  ColumnNames names_;
  std::vector<std::unique_ptr<FeatureColumn>> columns_;
  std::vector<List> lists_;
};

}  // namespace

Result<Example> ParseTfExample(std::string_view bytes,
                               std::span<const FeatureSpec> features) {
  return CatchErrors([&]() -> Result<Example> {
    Columns columns(features);
    SLUICE_RETURN_IF_ERROR(columns.Start(std::nullopt));
    SLUICE_RETURN_IF_ERROR(columns.Add(bytes));
    return columns.Take();
  });
}

Result<Example> ParseTfExamples(std::span<const std::string_view> examples,
                                std::span<const FeatureSpec> features) {
  return CatchErrors([&]() -> Result<Example> {
    Columns columns(features);
    SLUICE_RETURN_IF_ERROR(
        columns.Start(static_cast<int64_t>(examples.size())));
    for (size_t i = 0; i < examples.size(); ++i) {
      const Status status = columns.Add(examples[i]);
      if (!status.ok()) return status.WithContext(fmt::format("example {}", i));
    }
    return columns.Take();
  });
}

}  // namespace sluice
