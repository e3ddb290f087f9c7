#include "io/sources/datasets.h"

#include <fmt/format.h>

#include "io/pipeline/dataset_node.h"
#include "io/sources/cifar.h"
#include "io/sources/digits.h"
#include "io/sources/idx.h"

namespace sluice::datasets {
namespace {

class RowsNode : public DatasetNode {
 public:
  RowsNode(std::string name, Example columns)
      : name_(std::move(name)),
        rows_(std::make_shared<const Rows>(std::move(columns))) {}
  std::string stage() const override { return "tensors"; }
  StreamPtr<Example> OpenStream(const Opening& /*opening*/) const override {
    return std::make_unique<RowStream>(rows_, OpenOrder());
  }
  int64_t cardinality() const override { return rows_->size(); }
  int64_t examples_per_epoch() const override { return rows_->size(); }
  std::string Describe(bool /*stages*/) const override {
    return fmt::format("{}[{}]", name_, rows_->size());
  }
  std::shared_ptr<const Rows> rows() const override { return rows_; }
  StreamPtr<int64_t> OpenOrder() const override {
    return std::make_unique<RangeStream>(rows_->size());
  }

 private:
  const std::string name_;
  const std::shared_ptr<const Rows> rows_;
};

// Throws where that cannot be found out, such as on a server that is down.
bool IsThere(const std::string& path) {
  const Status found = FileSystem::Default().Size(path).status();
  if (!found.ok() && found.code() != Code::kNotFound) throw Error(found);
  return found.ok();
}

// `name` or `name`.gz in dir.
std::string FindIdx(const std::string& dir, const std::string& name) {
  for (const char* extension : {"", ".gz"}) {
    std::string path = JoinPath(dir, name + extension);
    if (IsThere(path)) return path;
  }
  throw Error(
      Code::kNotFound,
      fmt::format(
          "no MNIST in '{}': '{}' (or .gz) is missing; wanted "
          "{{train,t10k}}-images-idx3-ubyte and -labels-idx1-ubyte. Put the "
          "four files there, or leave --data-dir away for synthetic digits",
          dir, name));
}

// The path of a file of CIFAR-10.
std::string FindCifar10(const std::string& dir, const std::string& name) {
  std::string path = JoinPath(dir, name);
  if (IsThere(path)) return path;
  if (IsThere(path + ".xz")) {
    throw Error(Code::kNotFound,
                fmt::format("'{0}.xz' is compressed; unpack it: xz -dc {0}.xz "
                            "> FOLDER/{1}, all six, and give --data-dir FOLDER",
                            path, name));
  }
  throw Error(
      Code::kNotFound,
      fmt::format("no CIFAR-10 in '{}': '{}' is missing; wanted the binary "
                  "version, data_batch_1.bin to data_batch_5.bin and "
                  "test_batch.bin",
                  dir, name));
}

void CheckMnist(const Tensor& images, const std::string& image_path,
                const Tensor& labels, const std::string& label_path) {
  if (images.dtype() != DType::kUInt8 || images.shape().rank() != 3 ||
      images.shape()[1] != kDigitSize || images.shape()[2] != kDigitSize) {
    throw Error(
        Code::kDataLoss,
        fmt::format("'{}': wanted uint8[?,28,28] images, got {}{}", image_path,
                    NameOf(images.dtype()), images.shape().ToString()));
  }
  if (labels.dtype() != DType::kUInt8 || labels.shape().rank() != 1) {
    throw Error(
        Code::kDataLoss,
        fmt::format("'{}': wanted uint8[?] labels, got {}{}", label_path,
                    NameOf(labels.dtype()), labels.shape().ToString()));
  }
  if (images.shape()[0] != labels.shape()[0]) {
    throw Error(
        Code::kDataLoss,
        fmt::format("'{}' has {} images but '{}' has {} labels", image_path,
                    images.shape()[0], label_path, labels.shape()[0]));
  }
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const int label = labels.data<uint8_t>()[i];
    if (label > 9) {
      throw Error(Code::kOutOfRange,
                  fmt::format("'{}': label {} at index {} is not in 0..9",
                              label_path, label, i));
    }
  }
}

}  // namespace

Dataset FromTensors(Example columns, std::string identity) {
  return Dataset(
      std::make_shared<RowsNode>(std::move(identity), std::move(columns)));
}

Dataset Mnist(const std::string& dir, Mode mode) {
  const std::string split = mode == Mode::kTrain ? "train" : "t10k";
  const std::string image_path = FindIdx(dir, split + "-images-idx3-ubyte");
  const std::string label_path = FindIdx(dir, split + "-labels-idx1-ubyte");
  const Tensor images = ReadIdx(image_path).ValueOrThrow();
  const Tensor labels = ReadIdx(label_path).ValueOrThrow();
  CheckMnist(images, image_path, labels, label_path);
  const int64_t n = images.shape()[0];
  return Dataset(std::make_shared<RowsNode>(
      "mnist-" + split,
      Example{{"image", images.Reshaped({n, kDigitSize, kDigitSize, 1})},
              {"label", labels.Cast(DType::kInt64)}}));
}

Dataset Cifar10(const std::string& dir, Mode mode) {
  std::vector<std::string> paths;
  if (mode == Mode::kTrain) {
    for (int i = 1; i <= 5; ++i) {
      paths.push_back(FindCifar10(dir, fmt::format("data_batch_{}.bin", i)));
    }
  } else {
    paths.push_back(FindCifar10(dir, "test_batch.bin"));
  }
  return Dataset(std::make_shared<RowsNode>(
      mode == Mode::kTrain ? "cifar10-train" : "cifar10-test",
      ReadCifar10(paths).ValueOrThrow()));
}

Dataset SyntheticDigits(int64_t count, uint64_t seed) {
  if (count < 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("SyntheticDigits: got {} digits", count));
  }
  Digits digits = DrawDigits(count, seed);
  return Dataset(
      std::make_shared<RowsNode>(fmt::format("synthetic-digits({})", seed),
                                 Example{{"image", std::move(digits.images)},
                                         {"label", std::move(digits.labels)}}));
}

}  // namespace sluice::datasets
