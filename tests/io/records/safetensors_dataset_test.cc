// Rows of a safetensors file as a dataset, against the tensors that were
// written.
#include "io/records/safetensors_dataset.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "io/checkpoints/safetensors.h"
#include "io/files/file.h"
#include "io/files/schemes.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::ErrorOf;
using testing::FaultFileSystem;
using testing::Once;
using testing::TemporaryFolder;

constexpr DType kDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                             DType::kBFloat16, DType::kInt8,    DType::kUInt8,
                             DType::kInt32,    DType::kInt64,   DType::kBool};

Tensor RandomTensor(std::mt19937& random, DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  const std::string bytes = testing::RandomBytes(random, tensor.bytes());
  auto* to = static_cast<char*>(tensor.raw());
  for (size_t i = 0; i < bytes.size(); ++i) {
    to[i] = dtype == DType::kBool ? static_cast<char>(bytes[i] & 1) : bytes[i];
  }
  return tensor;
}

Shape WithRows(int64_t rows, const Shape& rest) {
  Shape shape = {rows};
  for (const int64_t d : rest) shape.push_back(d);
  return shape;
}

TEST_CASE("examples are the rows of all tensors, in any order") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder dir;
    const std::string path = dir / "f.safetensors";
    const auto rows = static_cast<int64_t>(Below(random, 30));
    std::vector<NamedTensor> tensors;
    std::vector<Shape> shapes;
    for (size_t i = 0; i < 1 + Below(random, 5); ++i) {
      Shape rest;
      for (size_t n = Below(random, 4); n > 0; --n) {
        rest.push_back(static_cast<int64_t>(Below(random, 5)));
      }
      shapes.push_back(rest);
      tensors.push_back({fmt::format("t{}", i),
                         RandomTensor(random, kDTypes[Below(random, 9)],
                                      WithRows(rows, rest))});
    }
    const bool scalar = Once(random, 3);
    if (scalar) tensors.push_back({"scalar", Tensor::Scalar(1.0F)});
    REQUIRE(WriteSafetensors(path, tensors).ok());
    SafetensorsOptions options = {.threads = 1 + static_cast<int>(seed % 3)};
    if (scalar) {
      CHECK(Contains(ErrorOf([&] { datasets::Safetensors(path, options); }),
                     "tensor 'scalar' is a scalar"));
      tensors.pop_back();
      for (const NamedTensor& t : tensors) options.names.push_back(t.name);
    }
    const Dataset dataset = datasets::Safetensors(path, options);
    CHECK(dataset.cardinality() == rows);
    const auto check = [&](const Dataset& shuffled) {
      Iterator iterator = shuffled.MakeIterator();
      Example example;
      std::vector<int> seen(static_cast<size_t>(rows));
      // Which row came is told by a tensor of their numbers.
      while (iterator.Next(&example).ValueOrThrow()) {
        const auto row = example["row"].IntAt(0);
        ++seen[static_cast<size_t>(row)];
        REQUIRE(example.size() == tensors.size() + 1);
        for (size_t i = 0; i < tensors.size(); ++i) {
          const Tensor& tensor = example[tensors[i].name];
          CHECK(tensor.BitEqual(
              tensors[i].tensor.Rows(row, row + 1).Reshaped(shapes[i])));
        }
      }
      CHECK(seen == std::vector<int>(static_cast<size_t>(rows), 1));
    };
    Tensor numbers(DType::kInt64, {rows});
    for (int64_t i = 0; i < rows; ++i) numbers.data<int64_t>()[i] = i;
    std::vector<NamedTensor> numbered = tensors;
    numbered.push_back({"row", numbers});
    REQUIRE(WriteSafetensors(path, numbered).ok());
    options.names.clear();
    check(datasets::Safetensors(path, options));
    check(datasets::Safetensors(path, options).Shuffle(40, seed));
  }
}

TEST_CASE("resumed with the same file, not with another") {
  const TemporaryFolder dir;
  const std::string path = dir / "f";
  std::mt19937 random(1);
  const auto write = [&](int64_t rows) {
    REQUIRE(WriteSafetensors(
                path,
                std::vector<NamedTensor>{
                    {"x", RandomTensor(random, DType::kInt32, {rows, 2})}})
                .ok());
  };
  write(10);
  const Dataset dataset = datasets::Safetensors(path).Shuffle(10, 1).Repeat();
  Iterator iterator = dataset.MakeIterator();
  Example example, resumed;
  for (int i = 0; i < 13; ++i) REQUIRE(*iterator.Next(&example));
  Iterator again = dataset.MakeIterator();
  REQUIRE(again.Restore(iterator.SavePosition()).ok());
  REQUIRE((*iterator.Next(&example) && *again.Next(&resumed)));
  CHECK(example["x"].BitEqual(resumed["x"]));
  const std::string position = iterator.SavePosition();
  write(10);  // other numbers
  CHECK(!datasets::Safetensors(path)
             .Shuffle(10, 1)
             .Repeat()
             .MakeIterator()
             .Restore(position)
             .ok());
}

// Whose files are others right after they were opened.
class Replaced final : public FaultFileSystem {
 public:
  explicit Replaced(std::string bytes) : bytes_(std::move(bytes)) {}
  Result<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    auto opened = FaultFileSystem::OpenRead(path);
    REQUIRE(WriteAtomically(path, bytes_).ok());
    return opened;
  }

 private:
  const std::string bytes_;
};

TEST_CASE("rows are those of the file that was opened, with its header") {
  std::mt19937 random(7);
  const TemporaryFolder dir;
  const auto bytes = [&](const NamedTensor& tensor) {
    REQUIRE(WriteSafetensors(dir / "f", std::vector{tensor}).ok());
    return FileSystem::Posix().Read(dir / "f").ValueOrThrow();
  };
  const Tensor all = RandomTensor(random, DType::kInt64, {100, 3});
  const std::string first = bytes({"a", all});
  static Replaced files(
      bytes({"a", RandomTensor(random, DType::kInt64, {50, 6})}));
  RegisterScheme("replaced", files);
  const std::string path = "replaced://folder/f";
  REQUIRE(files.MakeDirectories("replaced://folder").ok());
  REQUIRE(files.WriteAtomically(path, first).ok());
  const Dataset rows = datasets::Safetensors(path);
  REQUIRE(rows.cardinality() == 100);
  Iterator iterator = rows.MakeIterator();
  Example example;
  for (int64_t i = 0; i < 100; ++i) {
    REQUIRE(iterator.Next(&example).ValueOrThrow());
    for (int64_t j = 0; j < 3; ++j) {
      CHECK(example["a"].IntAt(j) == all.IntAt(3 * i + j));
    }
  }
}

TEST_CASE("files that are none, do not fit, or change") {
  const TemporaryFolder dir;
  const std::string path = dir / "f";
  const auto error = [&](const std::vector<std::string>& names = {}) {
    return ErrorOf([&] { datasets::Safetensors(path, {.names = names}); });
  };
  const auto write = [&](const std::vector<NamedTensor>& tensors) {
    REQUIRE(WriteSafetensors(path, tensors).ok());
  };
  CHECK(Contains(error(), path));
  REQUIRE(FileSystem::Posix().WriteAtomically(path, "nothing").ok());
  CHECK(Contains(error(), "truncated"));
  write({});
  CHECK(Contains(error(), "it has no tensors"));
  write({{"a", Tensor::Zeros(DType::kInt32, {3, 2})},
         {"b", Tensor::Zeros(DType::kUInt8, {4})}});
  CHECK(error() == fmt::format("'{}': tensor 'a' has 3 rows, 'b' has 4", path));
  CHECK(error({"b"}) == "(no error)");
  CHECK(error({"b", "c"}) == fmt::format("'{}' has no tensor 'c'", path));

  write({{"flags", Tensor::Zeros(DType::kBool, {4, 2})}});
  std::string bytes = FileSystem::Posix().Read(path).ValueOrThrow();
  bytes[bytes.size() - 3] = 2;  // in row 2
  REQUIRE(FileSystem::Posix().WriteAtomically(path, bytes).ok());
  const Dataset flags = datasets::Safetensors(path);
  Iterator iterator = flags.MakeIterator();
  Example example;
  REQUIRE((*iterator.Next(&example) && *iterator.Next(&example)));
  Status status = iterator.Next(&example).status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(status.message() ==
        fmt::format("'{}', tensor 'flags', row 2: a BOOL is neither 0 nor 1",
                    path));
  // Cut while it is open.
  std::filesystem::resize_file(path, bytes.size() - 7);
  iterator = flags.MakeIterator();
  status = iterator.Next(&example).status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(Contains(status.message(),
                 "tensor 'flags', row 0: the file has become "
                 "shorter"));
}

}  // namespace
}  // namespace sluice
