// Files of records, written plain and compressed: read back by our readers and
// by zlib's own, and whole or not there whatever fails on the way.
#include "io/records/record_writer.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "io/files/record.h"
#include "io/records/file_datasets.h"
#include "io/records/record_files.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_bytes.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Below;
using testing::FaultFileSystem;
using testing::RandomBytes;
using testing::TemporaryFolder;

constexpr Compression kAll[] = {Compression::kNone, Compression::kGzip,
                                Compression::kZlib};

// Some of which do not get smaller, and such as are more than a piece.
std::vector<std::string> RandomPayloads(std::mt19937& random) {
  std::vector<std::string> payloads;
  for (size_t i = Below(random, 40); i > 0; --i) {
    const size_t size = Below(random, 8) == 0 ? 100'000 : 300;
    payloads.push_back(Below(random, 2) == 0
                           ? RandomBytes(random, Below(random, size))
                           : std::string(Below(random, size), 'a'));
  }
  return payloads;
}

Status WriteAll(FileSystem& files, const std::string& path,
                Compression compression,
                const std::vector<std::string>& payloads) {
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          RecordWriter::Create(path, compression, files));
  for (const std::string& payload : payloads) {
    SLUICE_RETURN_IF_ERROR(file->Write(payload));
  }
  CHECK(file->records() == static_cast<int64_t>(payloads.size()));
  return file->Close();
}

std::string Framed(const std::vector<std::string>& payloads) {
  std::string file;
  for (const std::string& payload : payloads) AppendRecord(payload, &file);
  return file;
}

// What zlib makes of it, without ours. Of gzip by gzopen, else by uncompress.
std::string ByZlib(const std::string& path, Compression compression,
                   size_t size) {
  std::string bytes(size + 1, '\0');
  if (compression == Compression::kGzip) {
    gzFile file = gzopen(path.c_str(), "rb");
    REQUIRE(file != nullptr);
    REQUIRE(gzdirect(file) == 0);
    bytes.resize(static_cast<size_t>(std::max(
        0, gzread(file, bytes.data(), static_cast<unsigned>(bytes.size())))));
    REQUIRE(gzclose(file) == Z_OK);
    return bytes;
  }
  const std::string packed = FileSystem::Default().Read(path).ValueOrThrow();
  uLongf length = bytes.size();
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &length,
                     reinterpret_cast<const Bytef*>(packed.data()),
                     packed.size()) == Z_OK);
  bytes.resize(length);
  return bytes;
}

TEST_CASE("what is written is read, by others too") {
  const TemporaryFolder folder;
  const std::string path = folder / "records";
  FileSystem& files = FileSystem::Default();
  for (uint32_t seed = 0; seed < testing::Rounds(60u); ++seed) {
    std::mt19937 random(seed);
    const Compression compression = kAll[seed % 3];
    const std::vector<std::string> payloads = RandomPayloads(random);
    REQUIRE(WriteAll(files, path, compression, payloads).ok());
    const std::string framed = Framed(payloads);
    if (compression == Compression::kNone) {
      CHECK(files.Read(path).ValueOrThrow() == framed);
      const auto records = RecordFiles::Open({path}).ValueOrThrow();
      REQUIRE(records->size() == static_cast<int64_t>(payloads.size()));
      for (size_t i = 0; i < payloads.size(); ++i) {
        CHECK(records->Read(static_cast<int64_t>(i)).ValueOrThrow() ==
              payloads[i]);
      }
    } else {
      CHECK(ByZlib(path, compression, framed.size()) == framed);
      CHECK_FALSE(*files.Exists(path + ".idx"));  // of the plain one before
    }
    Iterator stream = datasets::Records({path}).MakeIterator();
    Example record;
    for (const std::string& payload : payloads) {
      REQUIRE(stream.Next(&record).ValueOrThrow());
      CHECK(BytesOf(record["bytes"]) == payload);
    }
    CHECK_FALSE(stream.Next(&record).ValueOrThrow());
  }
}

// The payloads that are there, in order; fails where some are not right.
std::vector<std::string> Found(FileSystem& files, const std::string& path) {
  const auto records = RecordFiles::Open({path}, 1, files).ValueOrThrow();
  std::vector<std::string> payloads;
  for (int64_t i = 0; i < records->size(); ++i) {
    payloads.push_back(records->Read(i).ValueOrThrow());
  }
  return payloads;
}

TEST_CASE("a file is the old one or the new one, whatever fails when") {
  using Fault = FaultFileSystem::Fault;
  using Loss = FaultFileSystem::Loss;
  const std::vector<std::string> old = {"a", std::string(500, 'b'), ""};
  std::mt19937 random(5);
  int kept = 0, replaced = 0;
  for (const Fault fault : {Fault::kDiskFull, Fault::kKill}) {
    for (const Loss loss :
         {Loss::kNothing, Loss::kUnsyncedData, Loss::kUnsyncedDataAndNames}) {
      for (int at = 1;; ++at) {
        CAPTURE(at);
        FaultFileSystem files;
        REQUIRE(WriteAll(files, "f", Compression::kNone, old).ok());
        const std::vector<std::string> anew = {RandomBytes(random, 700), "c"};
        files.Restart(Loss::kNothing);
        files.FailAt(at, fault);
        const bool ok = WriteAll(files, "f", Compression::kNone, anew).ok();
        const bool failed = files.failed();
        if (!failed) CHECK(ok);
        files.Restart(loss);
        const std::vector<std::string> found = Found(files, "f");
        const bool is_new = found == anew;
        CHECK((is_new || found == old));
        if (ok) CHECK(is_new);
        (is_new ? replaced : kept)++;
        if (!failed) break;
      }
    }
  }
  CHECK(kept > 6);
  CHECK(replaced > 6);
}

TEST_CASE("one that is not closed leaves nothing") {
  const TemporaryFolder folder;
  {
    const auto file = RecordWriter::Create(folder / "f").ValueOrThrow();
    REQUIRE(file->Write("a").ok());
  }
  CHECK(FileSystem::Default().List(folder.path()).ValueOrThrow().empty());
}

}  // namespace
}  // namespace sluice
