#include "io/records/safetensors_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "io/checkpoints/safetensors_header.h"
#include "io/files/file.h"
#include "io/files/without_query.h"
#include "io/records/files_in_turn.h"
#include "io/sources/datasets.h"

namespace sluice::datasets {
namespace {

class RowReader {
 public:
  RowReader(const std::string& path, const std::vector<std::string>& names)
      : path_(WithoutQuery(path)),
        file_(FileSystem::Default().OpenRead(path).ValueOrThrow()) {
    SafetensorsHeader header =
        WithPath(ReadHeader(*file_, &data_begin_), path).ValueOrThrow().header;
    if (names.empty()) {
      tensors_ = std::move(header.tensors);
    } else {
      for (const std::string& name : names) Choose(header, name);
    }
    CheckRows();
  }

  int64_t rows() const { return tensors_[0].shape[0]; }

  Example Read(int64_t row) const {
    Example example;
    for (const TensorInfo& tensor : tensors_) {
      example.Set(tensor.name, ReadRow(tensor, row));
    }
    return example;
  }

 private:
  void Choose(const SafetensorsHeader& header, const std::string& name) {
    const auto found =
        std::find_if(header.tensors.begin(), header.tensors.end(),
                     [&](const TensorInfo& t) { return t.name == name; });
    if (found == header.tensors.end()) {
      throw Error(Code::kNotFound,
                  fmt::format("'{}' has no tensor '{}'", path_, name));
    }
    tensors_.push_back(*found);
  }

  void CheckRows() const {
    const auto refuse = [&](const std::string& what) {
      throw Error(Code::kInvalidArgument, fmt::format("'{}': {}", path_, what));
    };
    if (tensors_.empty()) refuse("it has no tensors, so no examples");
    const TensorInfo& first = tensors_[0];
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.shape.rank() == 0) {
        refuse(
            fmt::format("tensor '{}' is a scalar; wanted a row for each "
                        "example, or other names",
                        tensor.name));
      }
      if (tensor.shape[0] == first.shape[0]) continue;
      refuse(fmt::format("tensor '{}' has {} rows, '{}' has {}", first.name,
                         first.shape[0], tensor.name, tensor.shape[0]));
    }
  }

  Tensor ReadRow(const TensorInfo& info, int64_t row) const {
    Shape shape;
    for (int i = 1; i < info.shape.rank(); ++i) shape.push_back(info.shape[i]);
    Tensor tensor(info.dtype, shape);
    const uint64_t begin =
        data_begin_ + info.begin + static_cast<uint64_t>(row) * tensor.bytes();
    const auto got = file_->ReadAt(begin, tensor.raw(), tensor.bytes());
    ThrowIfError(got.status());
    const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
    if (*got < tensor.bytes()) {
      Bad(info, row, "the file has become shorter since it was opened");
    }
    // Any other byte in a bool is undefined behaviour in C++.
    if (info.dtype == DType::kBool &&
        std::any_of(bytes, bytes + *got, [](uint8_t b) { return b > 1; })) {
      Bad(info, row, "a BOOL is neither 0 nor 1");
    }
    return tensor;
  }

  [[noreturn]] void Bad(const TensorInfo& info, int64_t row,
                        const char* what) const {
    throw Error(Code::kDataLoss, fmt::format("'{}', tensor '{}', row {}: {}",
                                             path_, info.name, row, what));
  }

  const std::string path_;  // for messages
  const std::unique_ptr<ReadableFile> file_;
  uint64_t data_begin_ = 0;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

Dataset Safetensors(const std::string& path,
                    const SafetensorsOptions& options) {
  const auto reader = std::make_shared<const RowReader>(path, options.names);
  return FromFunction(
      reader->rows(), [reader](int64_t row) { return reader->Read(row); },
      fmt::format("safetensors({})", IdentityOfFiles({path})), options.threads);
}

}  // namespace sluice::datasets
