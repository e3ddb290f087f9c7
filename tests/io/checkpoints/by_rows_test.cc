// Tensors that are written and read some rows at a time: the same files as of
// whole ones; a crash at any operation leaves the older checkpoint or the new
// one; what changes meanwhile, or is cut short, is an error and never mixed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;
using Fault = FaultFileSystem::Fault;
using Loss = FaultFileSystem::Loss;
using testing::Contains;

RowsTensor ByRows(const std::string& name, const Tensor& whole) {
  return {name, whole.dtype(), whole.shape(),
          [whole](int64_t begin, Tensor* rows) -> Status {
            const Tensor some = whole.Rows(begin, begin + rows->shape()[0]);
            std::copy_n(static_cast<const char*>(some.raw()), some.bytes(),
                        static_cast<char*>(rows->raw()));
            return {};
          }};
}

Tensor Whole(const RowsTensor& tensor) {
  Tensor whole(tensor.dtype, tensor.shape);
  int64_t next = 0;
  ThrowIfError(
      ForRows(tensor, [&](int64_t begin, const Tensor& rows) -> Status {
        CHECK(begin == next);
        next += rows.shape()[0];
        std::copy_n(static_cast<const char*>(rows.raw()), rows.bytes(),
                    static_cast<char*>(whole.Rows(begin, next).raw()));
        return {};
      }));
  CHECK(next == tensor.shape[0]);
  return whole;
}

Tensor RandomTensor(std::mt19937& random, DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  auto* bytes = static_cast<uint8_t*>(tensor.raw());
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(random());
  }
  return tensor;
}

TEST_CASE("what is written by rows is read as a whole, and back") {
  std::mt19937 random(2);
  const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                          DType::kInt64, DType::kUInt8};
  for (int trial = 0; trial < 40; ++trial) {
    CAPTURE(trial);
    FaultFileSystem files;
    Checkpoint whole, by_rows;
    whole.state.step = by_rows.state.step = trial;
    const int tensors = 1 + static_cast<int>(random() % 5);
    for (int i = 0; i < tensors; ++i) {
      // One in some is several pieces long, one empty.
      const int64_t rows = trial == 0   ? 300'000
                           : trial == 1 ? 0
                                        : static_cast<int64_t>(random() % 50);
      Shape shape = {rows};
      while (random() % 2 == 0 && shape.rank() < 4) {
        shape.push_back(1 + static_cast<int64_t>(random() % 7));
      }
      const Tensor value = RandomTensor(random, dtypes[random() % 5], shape);
      const std::string name = "t" + std::to_string(i);
      whole.tensors.push_back({name, value});
      if (random() % 3 > 0) {
        by_rows.by_rows.push_back(ByRows(name, value));
      } else {
        by_rows.tensors.push_back({name, value});
      }
    }
    REQUIRE(WriteCheckpoint("rows", by_rows, files).ok());
    REQUIRE(WriteCheckpoint("whole", whole, files).ok());
    const auto check = [&](const Checkpoint& read, bool all_here) {
      CHECK(read.state.step == trial);
      CHECK(read.tensors.size() + read.by_rows.size() == whole.tensors.size());
      if (all_here) CHECK(read.by_rows.empty());
      for (const NamedTensor& wanted : whole.tensors) {
        CAPTURE(wanted.name);
        int found = 0;
        for (const NamedTensor& tensor : read.tensors) {
          if (tensor.name != wanted.name) continue;
          ++found;
          CHECK(tensor.tensor.BitEqual(wanted.tensor));
        }
        for (const RowsTensor& tensor : read.by_rows) {
          if (tensor.name != wanted.name) continue;
          ++found;
          CHECK(Whole(tensor).BitEqual(wanted.tensor));
        }
        CHECK(found == 1);
      }
    };
    for (const char* path : {"rows", "whole"}) {
      check(ReadCheckpoint(path, files).ValueOrThrow(), true);
      const auto some = [&](const std::string& name) {
        return (name.back() - '0') % 2 == trial % 2;
      };
      check(ReadCheckpoint(path, files, some).ValueOrThrow(), false);
    }
    // Damage anywhere shows, whether it is in what is left in the file or not.
    std::string bytes = files.Read("rows").ValueOrThrow();
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    REQUIRE(files.WriteAtomically("rows", bytes).ok());
    const auto all = [](const std::string&) { return true; };
    const bool padding =
        at >= 8 && bytes[at] != ' ' && ReadCheckpoint("rows", files).ok();
    if (!padding) CHECK(!ReadCheckpoint("rows", files, all).ok());
    // And so does an end that came too soon.
    bytes = files.Read("whole").ValueOrThrow();
    bytes.resize(random() % bytes.size());
    REQUIRE(files.WriteAtomically("whole", bytes).ok());
    CHECK(!ReadCheckpoint("whole", files, all).ok());
  }
}

TEST_CASE("what changes while it is written is no checkpoint") {
  FaultFileSystem files;
  Checkpoint checkpoint;
  Tensor value = Tensor::Full(DType::kFloat32, {10, 3}, 1);
  checkpoint.by_rows = {ByRows("table", value)};
  REQUIRE(WriteCheckpoint("c", checkpoint, files).ok());
  const std::string before = files.Read("c").ValueOrThrow();
  int reads = 0;
  checkpoint.by_rows[0].read = [&, read = checkpoint.by_rows[0].read](
                                   int64_t begin, Tensor* rows) {
    if (++reads == 2) value.data<float>()[7] = 2;
    return read(begin, rows);
  };
  const Status status = WriteCheckpoint("c", checkpoint, files);
  CHECK(status.code() == Code::kFailedPrecondition);
  CHECK(Contains(status.message(), "have changed while they were written"));
  CHECK(files.Read("c").ValueOrThrow() == before);
  // So is what can be read no more, the first time or the second.
  for (const int last : {1, 2}) {
    reads = 0;
    checkpoint.by_rows[0].read = [&, last](int64_t, Tensor* rows) -> Status {
      std::fill_n(static_cast<char*>(rows->raw()), rows->bytes(), 0);
      if (++reads == last) return Unavailable("the server has gone");
      return {};
    };
    const Status gone = WriteCheckpoint("c", checkpoint, files);
    CHECK(gone.code() == Code::kUnavailable);
    CHECK(Contains(gone.message(), "the server has gone"));
    CHECK(files.Read("c").ValueOrThrow() == before);
    for (const std::string& name : files.List(".").ValueOrThrow()) {
      CHECK(!IsTemporaryName(name));
    }
  }
}

Checkpoint Make(int64_t step, double metric) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.metric = metric;
  const auto number = static_cast<double>(step);
  checkpoint.tensors = {{"bias", Tensor::Full(DType::kFloat32, {3}, number)}};
  // Of more than one piece.
  checkpoint.by_rows = {
      ByRows("table", Tensor::Full(DType::kFloat32, {500'000, 3}, number)),
      ByRows("table/slot", Tensor::Full(DType::kFloat32, {7, 3}, number))};
  return checkpoint;
}

bool IsWhole(const Checkpoint& checkpoint) {
  const auto number = static_cast<double>(checkpoint.state.step);
  std::vector<NamedTensor> all = checkpoint.tensors;
  for (const RowsTensor& tensor : checkpoint.by_rows) {
    all.push_back({tensor.name, Whole(tensor)});
  }
  return all.size() == 3 &&
         std::all_of(all.begin(), all.end(), [&](const NamedTensor& t) {
           const auto values = t.tensor.values<float>();
           return std::all_of(values.begin(), values.end(),
                              [&](float x) { return x == number; });
         });
}

CheckpointManager Open(FaultFileSystem& files) {
  return CheckpointManager::Open("run", {.keep = 2, .files = &files})
      .ValueOrThrow();
}

// Saves step 3 over steps 1 and 2 with a fault at operation n. True when n is
// behind the last operation.
bool SaveWithFault(int n, Fault fault, Loss loss) {
  CAPTURE(n);
  FaultFileSystem files;
  CheckpointManager manager = Open(files);
  REQUIRE(manager.Save(Make(1, 0.1)).ok());
  REQUIRE(manager.Save(Make(2, 0.2)).ok());
  files.FailAt(files.operations() + n, fault);
  const bool saved = manager.Save(Make(3, 0.3)).ok();
  const bool faulted = files.failed();
  files.Restart(loss);
  CheckpointManager after = Open(files);
  const auto newest =
      after
          .RestoreNewest([](const std::string& name) { return name != "bias"; })
          .ValueOrThrow();
  REQUIRE(newest.has_value());
  CHECK(newest->warnings.empty());
  CHECK(newest->checkpoint.by_rows.size() == 2);
  CHECK(IsWhole(newest->checkpoint));
  CHECK((newest->checkpoint.state.step == 3 ||
         (newest->checkpoint.state.step == 2 && !saved)));
  for (const int64_t step : after.Steps().ValueOrThrow()) {
    CHECK(IsWhole(ReadCheckpoint(after.PathOf(step), files).ValueOrThrow()));
  }
  for (const std::string& name : files.List("run").ValueOrThrow()) {
    CHECK(!IsTemporaryName(name));
  }
  CHECK(after.Save(Make(4, 0.4)).ok());
  return !faulted;
}

TEST_CASE("killed at any operation, the older or the new one is whole") {
  for (const Fault fault : {Fault::kKill, Fault::kDiskFull}) {
    for (const Loss loss :
         {Loss::kNothing, Loss::kUnsyncedData, Loss::kUnsyncedDataAndNames}) {
      int n = 1;
      while (!SaveWithFault(n, fault, loss)) ++n;
      // create, head, one tensor, two pieces, one, sync, rename, sync, remove
      CHECK(n == 11);
    }
  }
}

// Whoever saves beside a reader removes what that has open.
TEST_CASE("a file that is left open is what it was") {
  FaultFileSystem files;
  CheckpointManager manager = Open(files);
  REQUIRE(manager.Save(Make(1, 0.1)).ok());
  const auto all = [](const std::string&) { return true; };
  const auto first = manager.RestoreNewest(all).ValueOrThrow();
  for (const int64_t step : {2, 3, 4}) {
    REQUIRE(manager.Save(Make(step, 0.1 * static_cast<double>(step))).ok());
  }
  CHECK(!files.Exists(first->path).ValueOrThrow());
  CHECK(IsWhole(first->checkpoint));
}

}  // namespace
}  // namespace sluice
