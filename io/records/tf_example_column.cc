#include "io/records/tf_example_column.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "engine/allocate.h"

namespace sluice::tf_wire {
namespace {

bool AnyRows(const Shape& shape) {
  return shape.rank() > 0 && shape[0] == kUnknown;
}

Status CheckSpec(const FeatureSpec& spec) {
  const DType dtype = spec.dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kInt64 &&
      dtype != DType::kUInt8) {
    return InvalidArgument(fmt::format(
        "feature '{}': wanted as {}, but features are float32, int64 or uint8",
        spec.name, NameOf(dtype)));
  }
  Shape shape = spec.shape;
  if (AnyRows(shape)) shape.set(0, 0);
  if (std::any_of(shape.begin(), shape.end(), [](auto d) { return d < 0; })) {
    return InvalidArgument(fmt::format(
        "feature '{}': wanted of shape {}, but only the first dimension may be "
        "unknown",
        spec.name, spec.shape.ToString()));
  }
  Status status = CheckTensorSize(dtype, shape);
  if (status.ok() && spec.missing) status = CheckHolds(dtype, *spec.missing);
  if (status.ok()) return status;
  return status.WithContext(fmt::format("feature '{}'", spec.name));
}

// T: of an element. A spec of known shape has its values put into the tensor as
// they are read; else numbers wait in a buffer, and text where it lies, for the
// longest row.
template <typename T>
class ColumnOf final : public FeatureColumn {
 public:
  explicit ColumnOf(const FeatureSpec& spec)
      : spec_(spec),
        any_size_(AnyRows(spec.shape)),
        unit_(spec.shape.elements(any_size_ ? 1 : 0, spec.shape.rank())),
        padding_(static_cast<T>(spec.missing.value_or(0))) {}

  Status Start(std::optional<int64_t> rows) override;
  bool SetRow(std::span<const List> lists) override;
  Status EndRow() override;
  Status Take(Tensor* out) override;

 private:
  static constexpr bool kText = std::is_same_v<T, uint8_t>;
  using Value = std::conditional_t<kText, std::string_view, T>;

  Status NewTensor(int64_t size, Tensor* out) const;
  static const T* TextData(std::string_view text) {
    return reinterpret_cast<const T*>(text.data());
  }
  void BeginRow() {
    found_ = false;
    kind_ = kNone;
    count_ = strings_ = 0;
  }
  void ClearRow();
  void Add(int64_t value);
  void Add(const FloatRun& run);
  void Add(std::string_view text);
  Status CheckCount() const;

  const FeatureSpec& spec_;
  const bool any_size_;
  // Elements of a row; if it is of any size, of the rows that it consists of.
  const int64_t unit_;
  const T padding_;
  std::optional<int64_t> rows_;

  // The row at hand.
  bool found_ = false;
  int kind_ = kNone;
  int64_t count_ = 0;  // of elements
  int64_t strings_ = 0;
  std::string_view text_;  // the last string

  Tensor tensor_;
  T* row_ = nullptr;  // in tensor_
  // Of any size: the elements of each row, and what they are.
  std::vector<int64_t> counts_;
  std::vector<T> numbers_;
  std::vector<std::string_view> texts_;
};

template <typename T>
Status ColumnOf<T>::NewTensor(int64_t size, Tensor* out) const {
  Shape shape;
  if (rows_) {
    if (spec_.shape.rank() == Shape::kMaxRank) {
      return InvalidArgument(fmt::format(
          "feature '{}': wanted of shape {}, which has no room for another "
          "dimension",
          spec_.name, spec_.shape.ToString()));
    }
    shape.push_back(*rows_);
  }
  for (const int64_t d : spec_.shape) shape.push_back(d);
  if (any_size_) shape.set(rows_ ? 1 : 0, size);
  if (const Status status = CheckTensorSize(spec_.dtype, shape); !status.ok()) {
    return status.WithContext(fmt::format("feature '{}'", spec_.name));
  }
  SLUICE_ASSIGN_OR_RETURN(*out, AllocateTensor(spec_.dtype, shape));
  return {};
}

template <typename T>
Status ColumnOf<T>::Start(std::optional<int64_t> rows) {
  rows_ = rows;
  counts_.clear();
  numbers_.clear();
  texts_.clear();
  BeginRow();
  // Of any size it is made for the sake of its errors.
  SLUICE_RETURN_IF_ERROR(NewTensor(0, &tensor_));
  row_ = tensor_.template data<T>();
  return {};
}

// Without what a map's earlier entry, or an earlier list, has given it.
template <typename T>
void ColumnOf<T>::ClearRow() {
  if (any_size_ && !kText) {
    numbers_.resize(numbers_.size() - static_cast<size_t>(count_));
  }
  count_ = 0;
  strings_ = 0;
}

template <typename T>
void ColumnOf<T>::Add(int64_t value) {
  if (any_size_) {
    numbers_.push_back(static_cast<T>(value));
  } else if (count_ < unit_) {
    row_[count_] = static_cast<T>(value);
  }
  ++count_;
}

template <typename T>
void ColumnOf<T>::Add(const FloatRun& run) {
  const auto count = static_cast<int64_t>(run.size());
  if constexpr (std::is_same_v<T, float>) {
    if (any_size_) {
      const size_t begin = numbers_.size();
      numbers_.resize(begin + run.size());
      CopyFloats(run, run.size(), numbers_.data() + begin);
    } else if (count_ < unit_) {
      CopyFloats(run, static_cast<size_t>(std::min(count, unit_ - count_)),
                 row_ + count_);
    }
  }
  count_ += count;
}

template <typename T>
void ColumnOf<T>::Add(std::string_view text) {
  text_ = text;
  count_ = static_cast<int64_t>(text.size());
  ++strings_;
}

template <typename T>
bool ColumnOf<T>::SetRow(std::span<const List> lists) {
  ClearRow();
  found_ = true;
  kind_ = kNone;
  for (const List& list : lists) {
    kind_ = list.kind;
    if (kind_ != kKindOf<Value>) {
      ClearRow();
      if (!IsList(list)) return false;
    } else if (!ForEach(TypeTag<Value>(), list.bytes,
                        [this](const auto& value) { this->Add(value); })) {
      return false;
    }
  }
  return true;
}

template <typename T>
Status ColumnOf<T>::CheckCount() const {
  const bool fits =
      any_size_ ? (unit_ > 0 ? count_ % unit_ : count_) == 0 : count_ == unit_;
  if (fits && (!kText || strings_ == 1)) return {};
  const std::string got =
      kText && strings_ != 1
          ? fmt::format("{} byte strings, wanted one as ", strings_)
          : fmt::format("{} {}, wanted ", count_, kText ? "bytes" : "values");
  return InvalidArgument(fmt::format("feature '{}' holds {}{}{}", spec_.name,
                                     got, NameOf(spec_.dtype),
                                     spec_.shape.ToString()));
}

template <typename T>
Status ColumnOf<T>::EndRow() {
  if (!found_ && !spec_.missing) {
    return NotFound(fmt::format("no feature '{}'", spec_.name));
  }
  if (kind_ != kNone && kind_ != kKindOf<Value>) {
    return OtherKind(spec_.name, kind_, kKindOf<Value>);
  }
  const bool is_empty = kText ? strings_ == 0 : count_ == 0;
  if (is_empty && spec_.missing) {
    if (!any_size_) std::fill_n(row_, unit_, padding_);
  } else {
    SLUICE_RETURN_IF_ERROR(CheckCount());
    if (kText && !any_size_) std::copy_n(TextData(text_), unit_, row_);
  }
  if (any_size_) {
    counts_.push_back(count_);
    if (kText) texts_.push_back(is_empty ? std::string_view() : text_);
  } else {
    row_ += unit_;
  }
  BeginRow();
  return {};
}

template <typename T>
Status ColumnOf<T>::Take(Tensor* out) {
  if (!any_size_) {
    *out = std::move(tensor_);
    return {};
  }
  int64_t longest = 0;
  for (const int64_t count : counts_) longest = std::max(longest, count);
  SLUICE_RETURN_IF_ERROR(NewTensor(unit_ > 0 ? longest / unit_ : 0, out));
  T* to = out->template data<T>();
  const T* from = numbers_.data();
  for (size_t i = 0; i < counts_.size(); ++i) {
    if constexpr (kText) from = TextData(texts_[i]);
    to = std::copy_n(from, counts_[i], to);
    to = std::fill_n(to, longest - counts_[i], padding_);
    if constexpr (!kText) from += counts_[i];
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<FeatureColumn>> FeatureColumn::Make(
    const FeatureSpec& spec) {
  SLUICE_RETURN_IF_ERROR(CheckSpec(spec));
  std::unique_ptr<FeatureColumn> column;
  if (spec.dtype == DType::kFloat32) {
    column = std::make_unique<ColumnOf<float>>(spec);
  } else if (spec.dtype == DType::kInt64) {
    column = std::make_unique<ColumnOf<int64_t>>(spec);
  } else {
    column = std::make_unique<ColumnOf<uint8_t>>(spec);
  }
  return column;
}

ColumnNames::ColumnNames(std::span<const FeatureSpec> features)
    : next_(features.size(), kNoColumn) {
  for (size_t i = 0; i < features.size(); ++i) {
    sorted_.push_back({features[i].name, i});
  }
  std::sort(sorted_.begin(), sorted_.end(), [](const Named& a, const Named& b) {
    return a.name != b.name ? a.name < b.name : a.column < b.column;
  });
  for (size_t i = 1; i < sorted_.size(); ++i) {
    if (sorted_[i].name == sorted_[i - 1].name) {
      next_[sorted_[i - 1].column] = sorted_[i].column;
    }
  }
}

size_t ColumnNames::Search(std::string_view name, size_t position) {
  const auto found = std::lower_bound(
      sorted_.begin(), sorted_.end(), name,
      [](const Named& a, std::string_view b) { return a.name < b; });
  const bool is_there = found != sorted_.end() && found->name == name;
  const size_t column = is_there ? found->column : kNoColumn;
  if (position == last_.size()) last_.emplace_back();
  last_[position] = {name, column};
  return column;
}

}  // namespace sluice::tf_wire
