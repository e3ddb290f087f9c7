#include "io/checkpoints/pth.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "engine/catch_errors.h"
#include "io/checkpoints/pickle.h"
#include "io/checkpoints/strided_view.h"
#include "io/files/without_query.h"
#include "io/files/zip.h"

namespace sluice {
namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;
using Value = Pickle::Value;

static_assert(std::endian::native == std::endian::little,
              "storages are little-endian");

// Tensors may share a storage, and strides of 0 repeat one element for ever.
constexpr size_t kMaxRepeats = 16;
constexpr size_t kFreeBytes = size_t{16} << 20;

// A parameter, or a tensor with attributes, wraps another tensor.
constexpr int kMaxWrappers = 4;

// Files before PyTorch 1.6 start with this number, pickled (MAGIC_NUMBER in
// torch/serialization.py).
constexpr std::string_view kLegacyMagic(
    "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19");
constexpr size_t kLegacyMagicWithin = 32;  // bytes

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", DType::kFloat32}, {"DoubleStorage", DType::kFloat64},
    {"HalfStorage", DType::kFloat16},  {"BFloat16Storage", DType::kBFloat16},
    {"CharStorage", DType::kInt8},     {"ByteStorage", DType::kUInt8},
    {"IntStorage", DType::kInt32},     {"LongStorage", DType::kInt64},
    {"BoolStorage", DType::kBool},
};

// Any other byte in a bool is undefined behaviour in C++.
Status CheckBools(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return {};
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  if (std::all_of(bytes, bytes + tensor.bytes(),
                  [](uint8_t b) { return b <= 1; })) {
    return {};
  }
  return DataLoss("a bool is neither 0 nor 1");
}

// Finds the state dict in a pickle and reads its tensors.
class StateDictReader {
 public:
  // Storages are entries of `archive` that start with `prefix`. The tensors may
  // take `max_bytes`.
  StateDictReader(const Pickle& pickle, const ZipArchive& archive,
                  std::string prefix, size_t max_bytes)
      : pickle_(pickle),
        archive_(archive),
        prefix_(std::move(prefix)),
        bytes_left_(max_bytes) {}

  Result<std::vector<NamedTensor>> Read();

 private:
  // Keys and values in turn; nothing for what is no dict.
  std::optional<std::span<const Id>> Items(const Value& value) const;
  bool IsTensor(const Value& value) const;
  bool HasTensors(std::span<const Id> items) const;
  Result<std::span<const Id>> FindStateDict() const;

  Result<Tensor> ReadTensor(const Value& value);
  // The arguments of _rebuild_tensor_v2, which makes the tensor in the end.
  Result<std::span<const Id>> Unwrap(const Value& value) const;
  Result<StridedView> ReadView(std::span<const Id> arguments);
  // Sets the view's dtype and storage.
  Status ReadStorage(const Value& value, StridedView& view);
  // Non-negative numbers of a tuple or a torch.Size.
  Result<std::vector<int64_t>> Counts(const Value& value) const;

  const Pickle& pickle_;
  const ZipArchive& archive_;
  const std::string prefix_;
  size_t bytes_left_;
  std::map<std::string_view, std::string_view> storages_;  // by key
};

bool IsGlobal(const Value& value, std::string_view module,
              std::string_view name) {
  return value.kind == Kind::kGlobal && value.module == module &&
         value.text == name;
}

std::optional<std::span<const Id>> StateDictReader::Items(
    const Value& value) const {
  if (value.kind == Kind::kDict) return value.items;
  if (value.kind != Kind::kObject) return std::nullopt;
  const Value& type = pickle_[value.items[0]];
  if (!IsGlobal(type, "collections", "OrderedDict") &&
      !IsGlobal(type, "collections", "defaultdict")) {
    return std::nullopt;
  }
  return std::span(value.items).subspan(2);
}

bool StateDictReader::IsTensor(const Value& value) const {
  if (value.kind != Kind::kObject) return false;
  const Value& function = pickle_[value.items[0]];
  return function.kind == Kind::kGlobal &&
         function.module.starts_with("torch.") &&
         function.text.starts_with("_rebuild_");
}

bool StateDictReader::HasTensors(std::span<const Id> items) const {
  for (size_t i = 0; i < items.size(); i += 2) {
    if (pickle_[items[i]].kind == Kind::kString &&
        IsTensor(pickle_[items[i + 1]])) {
      return true;
    }
  }
  return false;
}

Result<std::span<const Id>> StateDictReader::FindStateDict() const {
  const auto root = Items(pickle_[pickle_.root]);
  if (!root) {
    return Unimplemented(fmt::format(
        "the file holds {}, not a state dict; save model.state_dict() instead",
        Describe(pickle_, pickle_.root)));
  }
  for (const std::string_view name : {"state_dict", "model"}) {
    for (size_t i = 0; i < root->size(); i += 2) {
      const Value& key = pickle_[(*root)[i]];
      if (key.kind != Kind::kString || key.text != name) continue;
      const auto nested = Items(pickle_[(*root)[i + 1]]);
      if (nested && HasTensors(*nested)) return *nested;
    }
  }
  if (root->empty() || HasTensors(*root)) return *root;
  return Unimplemented(
      "the file holds a dict without tensors, and none under 'state_dict' or "
      "'model'; save model.state_dict() instead");
}

Result<std::vector<NamedTensor>> StateDictReader::Read() {
  SLUICE_ASSIGN_OR_RETURN(const std::span<const Id> items, FindStateDict());
  std::vector<NamedTensor> tensors;
  std::set<std::string_view> names;
  for (size_t i = 0; i < items.size(); i += 2) {
    const Value& key = pickle_[items[i]];
    const Value& value = pickle_[items[i + 1]];
    if (key.kind != Kind::kString || !IsTensor(value)) continue;
    if (!names.insert(key.text).second) {
      return DataLoss(fmt::format("tensor '{}' is listed twice", key.text));
    }
    auto tensor = ReadTensor(value);
    if (!tensor.ok()) {
      return tensor.status().WithContext(fmt::format("tensor '{}'", key.text));
    }
    tensors.push_back({std::string(key.text), *std::move(tensor)});
  }
  return tensors;
}

Result<Tensor> StateDictReader::ReadTensor(const Value& value) {
  SLUICE_ASSIGN_OR_RETURN(const std::span<const Id> arguments, Unwrap(value));
  SLUICE_ASSIGN_OR_RETURN(const StridedView view, ReadView(arguments));
  const size_t bytes =
      static_cast<size_t>(view.shape.elements()) * SizeOf(view.dtype);
  if (bytes > bytes_left_) {
    return Unimplemented(fmt::format(
        "the tensors share storages so much that they would take more than {} "
        "times the file's bytes",
        kMaxRepeats));
  }
  bytes_left_ -= bytes;
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, Gather(view));
  SLUICE_RETURN_IF_ERROR(CheckBools(tensor));
  return tensor;
}

Result<std::span<const Id>> StateDictReader::Unwrap(const Value& value) const {
  const Value* function = &pickle_[value.items[0]];
  const Value* arguments = &pickle_[value.items[1]];
  for (int i = 0; i <= kMaxWrappers; ++i) {
    if (function->kind != Kind::kGlobal || arguments->kind != Kind::kTuple) {
      break;
    }
    const std::string_view name = function->text;
    const std::vector<Id>& given = arguments->items;
    if (name == "_rebuild_tensor_v2") return std::span(given);
    if (name == "_rebuild_tensor_v3" && given.size() > 6) {
      // For dtypes that have no type of storage, all of them unknown to DType.
      return Unimplemented(
          fmt::format("{} is not supported", Describe(pickle_, given[6])));
    }
    if (name == "_rebuild_from_type_v2" && given.size() >= 3) {
      // (function, class, arguments, attributes)
      function = &pickle_[given[0]];
      arguments = &pickle_[given[2]];
    } else if ((name == "_rebuild_parameter" ||
                name == "_rebuild_parameter_with_state") &&
               !given.empty() && pickle_[given[0]].kind == Kind::kObject) {
      const Value& inner = pickle_[given[0]];
      function = &pickle_[inner.items[0]];
      arguments = &pickle_[inner.items[1]];
    } else {
      return Unimplemented(fmt::format("{}.{} is not supported",
                                       function->module, function->text));
    }
  }
  return DataLoss("it is not made by a function of torch's");
}

Result<StridedView> StateDictReader::ReadView(std::span<const Id> arguments) {
  const auto argument = [&](size_t i) -> const Value& {
    return pickle_[arguments[i]];
  };
  // storage, offset, sizes, strides, requires_grad, hooks, and perhaps metadata
  if (arguments.size() < 6 || argument(1).kind != Kind::kInt ||
      argument(1).integer < 0) {
    return DataLoss("torch._utils._rebuild_tensor_v2 has wrong arguments");
  }
  if (arguments.size() > 6 && !argument(6).items.empty()) {
    return Unimplemented("it is a lazy conjugate or negative of its storage");
  }
  StridedView view{.offset = argument(1).integer};
  SLUICE_RETURN_IF_ERROR(ReadStorage(argument(0), view));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                          Counts(argument(2)));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> strides,
                          Counts(argument(3)));
  if (sizes.size() != strides.size()) {
    return DataLoss(
        fmt::format("{} sizes and {} strides", sizes.size(), strides.size()));
  }
  if (sizes.size() > size_t{Shape::kMaxRank}) {
    return Unimplemented(fmt::format("{} dimensions, at most {} are supported",
                                     sizes.size(), Shape::kMaxRank));
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    view.shape.push_back(sizes[d]);
    view.strides[d] = strides[d];
  }
  SLUICE_RETURN_IF_ERROR(CheckView(view));
  return view;
}

Status StateDictReader::ReadStorage(const Value& value, StridedView& view) {
  const auto bad = [] { return DataLoss("its storage is not described"); };
  if (value.kind != Kind::kPersistent) return bad();
  const Value& tuple = pickle_[value.items[0]];
  // "storage", type, key, device, elements
  if (tuple.kind != Kind::kTuple || tuple.items.size() != 5) return bad();
  const Value& what = pickle_[tuple.items[0]];
  const Value& type = pickle_[tuple.items[1]];
  const Value& key = pickle_[tuple.items[2]];
  const Value& elements = pickle_[tuple.items[4]];
  if (what.kind != Kind::kString || what.text != "storage" ||
      type.kind != Kind::kGlobal || key.kind != Kind::kString ||
      elements.kind != Kind::kInt) {
    return bad();
  }
  const auto* known =
      std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                   [&](const StorageType& t) { return t.name == type.text; });
  if (known == std::end(kStorageTypes) || type.module != "torch") {
    return Unimplemented(fmt::format("storage of type {}.{} is not supported",
                                     type.module, type.text));
  }
  view.dtype = known->dtype;
  auto [stored, unread] = storages_.try_emplace(key.text);
  if (unread) {
    SLUICE_ASSIGN_OR_RETURN(stored->second,
                            archive_.Read(prefix_ + std::string(key.text)));
  }
  view.storage = stored->second;
  const size_t width = SizeOf(view.dtype);
  if (view.storage.size() % width != 0 ||
      static_cast<uint64_t>(elements.integer) != view.storage.size() / width) {
    return DataLoss(fmt::format("its storage of {} {} elements has {} bytes",
                                elements.integer, NameOf(view.dtype),
                                view.storage.size()));
  }
  return {};
}

Result<std::vector<int64_t>> StateDictReader::Counts(const Value& value) const {
  const Value* tuple = &value;
  if (value.kind == Kind::kObject &&
      IsGlobal(pickle_[value.items[0]], "torch", "Size")) {
    const Value& arguments = pickle_[value.items[1]];
    if (arguments.items.size() == 1) tuple = &pickle_[arguments.items[0]];
  }
  if (tuple->kind != Kind::kTuple) {
    return DataLoss("its sizes or strides are no tuple");
  }
  std::vector<int64_t> counts;
  for (const Id id : tuple->items) {
    if (pickle_[id].kind != Kind::kInt || pickle_[id].integer < 0) {
      return DataLoss("a size or stride is not a number from 0");
    }
    counts.push_back(pickle_[id].integer);
  }
  return counts;
}

Status CheckByteOrder(const ZipArchive& archive, const std::string& folder) {
  const std::string name = folder + "byteorder";
  if (!archive.Contains(name)) return {};  // before 2.1
  SLUICE_ASSIGN_OR_RETURN(const std::string_view order, archive.Read(name));
  if (order == "little") return {};
  if (order == "big") return Unimplemented("a big-endian file");
  return DataLoss("the byte order is neither little nor big");
}

Result<std::vector<NamedTensor>> Parse(std::string_view bytes) {
  if (!IsPth(bytes)) {
    if (bytes.substr(0, kLegacyMagicWithin).find(kLegacyMagic) !=
        std::string_view::npos) {
      return Unimplemented(
          "this is the format of PyTorch before 1.6; torch.load it and "
          "torch.save it again with a current one");
    }
    return DataLoss("not a file of torch.save, which would start with 'PK'");
  }
  SLUICE_ASSIGN_OR_RETURN(const ZipArchive archive, ZipArchive::Open(bytes));
  // As torch does, take the folder of the first entry.
  std::string folder;
  if (!archive.entries().empty()) {
    const std::string_view first = archive.entries()[0].name;
    folder = first.substr(0, first.find('/') + 1);
  }
  SLUICE_RETURN_IF_ERROR(CheckByteOrder(archive, folder));
  SLUICE_ASSIGN_OR_RETURN(const std::string_view program,
                          archive.Read(folder + "data.pkl"));
  SLUICE_ASSIGN_OR_RETURN(const Pickle pickle, ParsePickle(program));
  return StateDictReader(pickle, archive, folder + "data/",
                         kMaxRepeats * bytes.size() + kFreeBytes)
      .Read();
}

}  // namespace

bool IsPth(std::string_view first_bytes) {
  return IsZip(first_bytes);
}

Result<std::vector<NamedTensor>> ParsePth(std::string_view bytes,
                                          const std::string& path) {
  auto tensors = CatchErrors([&] { return Parse(bytes); });
  if (tensors.ok()) return tensors;
  // Names in the file may hold anything.
  std::string message = tensors.status().message();
  std::replace_if(
      message.begin(), message.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return Status(tensors.status().code(), std::move(message))
      .WithContext(fmt::format("'{}'", WithoutQuery(path)));
}

Result<std::vector<NamedTensor>> ReadPth(const std::string& path,
                                         FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, files.Read(path));
  return ParsePth(bytes, path);
}

}  // namespace sluice
