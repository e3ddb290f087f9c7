// Records read at random, against RecordReader from the first to the last;
// damaged, compressed and changed files, stale indices.
#include "io/records/record_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "io/files/record.h"
#include "io/records/record_writer.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/random_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/watched_files.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::FaultFileSystem;
using testing::RandomBytes;
using testing::TemporaryFolder;
using testing::WatchedFiles;

// Small ones in most files, and such as need several reads to pass over.
size_t RandomSize(std::mt19937& random) {
  switch (Below(random, 8)) {
    case 0:
      return 0;
    case 1:
      return 450 + Below(random, 120);
    case 2:
      return Below(random, 10'000);
    case 3:
      return Below(random, 20) == 0 ? 60'000 + Below(random, 90'000) : 1;
    default:
      return Below(random, 120);
  }
}

struct Record {
  std::string place, payload;
};

// What RecordReader finds in a file.
std::vector<Record> Walked(const std::string& path, std::string_view file,
                           std::vector<uint64_t>* offsets = nullptr) {
  std::vector<Record> records;
  RecordReader reader(file);
  std::string_view payload;
  const char* next = file.data();
  for (;;) {
    const auto more = reader.Next(&payload);
    REQUIRE(more.ok());
    if (!*more) return records;
    const auto offset = static_cast<uint64_t>(next - file.data());
    if (offsets != nullptr) offsets->push_back(offset);
    records.push_back(
        {fmt::format("'{}', byte {}", path, offset), std::string(payload)});
    next = payload.data() + payload.size() + 4;  // behind its checksum
  }
}

void Write(FileSystem& files, const std::string& path, std::string_view bytes) {
  const auto file = files.Create(path);
  REQUIRE(file.ok());
  REQUIRE((*file)->Append(bytes).ok());
}

// Files of random records in a folder, some with an index.
struct RandomSet {
  std::vector<std::string> paths;
  std::vector<Record> records;

  RandomSet(FileSystem& files, const std::string& folder, size_t count,
            std::mt19937& random, size_t most_records = 60) {
    for (size_t f = 0; f < count; ++f) {
      paths.push_back(JoinPath(folder, fmt::format("records-{}", f)));
      std::string bytes;
      for (size_t n = Below(random, most_records + 1); n > 0; --n) {
        AppendRecord(RandomBytes(random, RandomSize(random)), &bytes);
      }
      Write(files, paths.back(), bytes);
      std::vector<uint64_t> offsets;
      for (Record& record : Walked(paths.back(), bytes, &offsets)) {
        records.push_back(std::move(record));
      }
      if (Below(random, 2) == 0) continue;
      Write(files, paths.back() + ".idx",
            RecordIndexText(offsets, bytes.size()));
    }
  }
};

// Reads at random from four threads; counts the records that were not so.
int CountWrong(const RecordFiles& files, const std::vector<Record>& expected,
               size_t reads) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (size_t i = 0; i < reads; ++i) {
        const size_t record = Below(random, expected.size());
        const auto at = static_cast<int64_t>(record);
        const auto payload = files.Read(at);
        wrong += !payload.ok() || *payload != expected[record].payload;
        wrong += files.PlaceOf(at) != expected[record].place;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

void CheckAll(const RecordFiles& files, const std::vector<Record>& expected) {
  REQUIRE(files.size() == static_cast<int64_t>(expected.size()));
  int wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto payload = files.Read(static_cast<int64_t>(i));
    wrong += !payload.ok() || *payload != expected[i].payload;
  }
  CHECK(wrong == 0);
}

TEST_CASE("records of random files, read at random from four threads") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const TemporaryFolder folder;
    FaultFileSystem memory;
    const bool real = seed % 2 == 0;
    FileSystem& files = real ? FileSystem::Posix() : memory;
    const RandomSet set(files, real ? folder.path() : ".", Below(random, 9),
                        random);
    const int threads = static_cast<int>(Below(random, 5));
    const auto opened = RecordFiles::Open(set.paths, threads, files);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    REQUIRE((*opened)->size() == static_cast<int64_t>(set.records.size()));
    if (set.records.empty()) continue;
    CHECK(CountWrong(**opened, set.records, 200) == 0);
    CheckAll(**opened, set.records);
  }
}

int OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST_CASE("of 200 files at most 64 are open") {
  std::mt19937 random(1);
  const TemporaryFolder folder;
  const RandomSet set(FileSystem::Posix(), folder.path(), 200, random, 3);
  const int before = OpenDescriptors();
  const auto opened = RecordFiles::Open(set.paths, 2);
  REQUIRE(opened.ok());
  CHECK(OpenDescriptors() == before);
  CHECK(CountWrong(**opened, set.records, 2000) == 0);
  CHECK(OpenDescriptors() == before + 64);
  // A file that is open stays what it was; the others are noticed.
  for (const std::string& path : set.paths) {
    std::filesystem::rename(path, path + ".old");
    Write(FileSystem::Posix(), path, std::string(16, 'x'));
  }
  int read = 0;
  for (size_t i = 0; i < set.records.size(); ++i) {
    const auto payload = (*opened)->Read(static_cast<int64_t>(i));
    if (payload.ok()) CHECK(*payload == set.records[i].payload);
    read += payload.ok();
  }
  CHECK(read > 0);
  CHECK(read < static_cast<int>(set.records.size()));
}

TEST_CASE("small records are passed in few reads, large ones are not read") {
  const auto file_of = [](int records, size_t size) {
    std::string bytes;
    for (int i = 0; i < records; ++i) {
      AppendRecord(std::string(size, 'x'), &bytes);
    }
    return bytes;
  };
  const std::string small = file_of(20'000, 100), large = file_of(200, 100'000);
  WatchedFiles files;
  Write(files, "small", small);
  CHECK(RecordFiles::Open({"small"}, 1, files).ok());
  CHECK(files.reads < 60);
  CHECK(files.bytes < small.size() + small.size() / 10);
  files.reads = files.bytes = 0;
  Write(files, "large", large);
  auto opened = RecordFiles::Open({"large"}, 1, files);
  REQUIRE(opened.ok());
  CHECK(files.reads == 200);
  CHECK(files.bytes < large.size() / 100);
  files.reads = files.bytes = files.opened = 0;
  for (int64_t i = 0; i < 200; ++i) CHECK((*opened)->Read(i).ok());
  CHECK(files.reads == 200);
  CHECK(files.bytes == large.size());
  CHECK(files.opened == 1);
  std::vector<uint64_t> offsets;
  Walked("large", large, &offsets);
  Write(files, "large.idx", RecordIndexText(offsets, large.size()));
  files.reads = files.bytes = 0;
  CHECK(RecordFiles::Open({"large"}, 1, files).ok());
  CHECK(files.reads == 1);
  CHECK(files.bytes < 1000);
}

struct OneFile {
  std::string bytes;
  std::vector<Record> records;
  std::vector<uint64_t> offsets;

  explicit OneFile(std::mt19937& random) {
    for (const size_t size : {40, 0, 700, 1, 12, 300}) {
      AppendRecord(RandomBytes(random, size), &bytes);
    }
    records = Walked("f", bytes, &offsets);
  }
};

// Refused, naming both.
void CheckMisfit(FileSystem& files) {
  const Status error = RecordFiles::Open({"f"}, 1, files).status();
  CHECK(error.code() == Code::kDataLoss);
  CHECK(Contains(error.message(), "'f.idx' does not fit 'f'"));
}

TEST_CASE("a file cut off at any byte") {
  std::mt19937 random(1);
  const OneFile one(random);
  for (size_t n = 0; n < one.bytes.size(); ++n) {
    CAPTURE(n);
    FaultFileSystem files;
    Write(files, "f", std::string_view(one.bytes).substr(0, n));
    // That of the whole file does not fit, also where whole records are left.
    Write(files, "f.idx", RecordIndexText(one.offsets, one.bytes.size()));
    CheckMisfit(files);
    ThrowIfError(files.Remove("f.idx"));
    const auto opened = RecordFiles::Open({"f"}, 1, files);
    const auto end =
        std::upper_bound(one.offsets.begin(), one.offsets.end(), n);
    const size_t last = *(end - 1);
    if (last == n) {
      REQUIRE(opened.ok());
      const std::vector<Record> whole(
          one.records.begin(),
          one.records.begin() + (end - 1 - one.offsets.begin()));
      CheckAll(**opened, whole);
    } else {
      CHECK(opened.status().code() == Code::kDataLoss);
      CHECK(Contains(opened.status().message(),
                     fmt::format("'f', byte {}: the file ends", last)));
    }
    // Cut off after it was opened.
    Write(files, "f", one.bytes);
    const auto before = RecordFiles::Open({"f"}, 1, files);
    REQUIRE(before.ok());
    if (n % 3 == 0) CHECK((*before)->Read(0).ok());  // keeps it open
    Write(files, "f", std::string_view(one.bytes).substr(0, n));
    for (size_t i = 0; i < one.records.size(); ++i) {
      const auto payload = (*before)->Read(static_cast<int64_t>(i));
      if (payload.ok()) {
        CHECK(*payload == one.records[i].payload);
        CHECK(one.offsets[i] + payload->size() + 16 <= n);
      } else {
        // Where it was still open nobody asks for its size again.
        const Code code = payload.status().code();
        CHECK((code == Code::kDataLoss || code == Code::kUnavailable));
        CHECK((n % 3 != 0 || code == Code::kDataLoss));
      }
    }
  }
}

TEST_CASE("flipped bits are an error, or in no record that is read") {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const OneFile one(random);
    FaultFileSystem files;
    std::string bad = one.bytes;
    const size_t at = Below(random, bad.size());
    bad[at] = static_cast<char>(bad[at] ^ (1 + Below(random, 255)));
    Write(files, "f", bad);
    if (round % 2 == 0) {
      Write(files, "f.idx", RecordIndexText(one.offsets, one.bytes.size()));
    }
    const auto opened = RecordFiles::Open({"f"}, 1, files);
    if (!opened.ok()) {
      CHECK((opened.status().code() == Code::kDataLoss ||
             opened.status().code() == Code::kUnimplemented));
      continue;
    }
    REQUIRE((*opened)->size() == static_cast<int64_t>(one.records.size()));
    int errors = 0;
    for (size_t i = 0; i < one.records.size(); ++i) {
      const auto payload = (*opened)->Read(static_cast<int64_t>(i));
      errors += !payload.ok();
      if (payload.ok()) {
        CHECK(*payload == one.records[i].payload);
      } else {
        CHECK(payload.status().code() == Code::kDataLoss);
        CHECK(payload.status().message().starts_with(one.records[i].place));
      }
    }
    CHECK(errors == 1);
  }
}

TEST_CASE("an index that does not fit the file") {
  std::mt19937 random(3);
  int misfits = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const OneFile one(random);
    FaultFileSystem files;
    Write(files, "f", one.bytes);
    std::string index = RecordIndexText(one.offsets, one.bytes.size());
    const size_t at = Below(random, index.size());
    switch (round % 5) {
      case 0:
        index[at] = static_cast<char>(index[at] ^ (1 + Below(random, 255)));
        break;
      case 1:
        index.resize(at);
        break;
      case 2:
        index.erase(at, 1);
        break;
      case 3:
        index.insert(at, 1, "0 \n9x"[Below(random, 5)]);
        break;
      default:
        index = RandomBytes(random, at);
    }
    Write(files, "f.idx", index);
    // A nought more before a number changes nothing.
    const auto opened = RecordFiles::Open({"f"}, 1, files);
    if (opened.ok()) {
      CheckAll(**opened, one.records);
    } else {
      CheckMisfit(files);
      ++misfits;
    }
    // The same records in another order.
    std::string again;
    std::vector<Record> backwards(one.records.rbegin(), one.records.rend());
    for (const Record& record : backwards) AppendRecord(record.payload, &again);
    Write(files, "f", again);
    Write(files, "f.idx", RecordIndexText(one.offsets, one.bytes.size()));
    CheckMisfit(files);
    ThrowIfError(files.Remove("f.idx"));
    CheckAll(**RecordFiles::Open({"f"}, 1, files), backwards);
  }
  CHECK(misfits > 250);
}

// It might say that records are missing.
TEST_CASE(
    "an index that cannot be read is an error, one there is not is none") {
  class Refusing : public FaultFileSystem {
   public:
    bool refuses = true;
    Result<std::string> ReadPrefix(const std::string& path,
                                   size_t limit) override {
      if (refuses && path.ends_with(".idx")) {
        return FailedPrecondition("cannot read '" + path + "': permission");
      }
      return FaultFileSystem::ReadPrefix(path, limit);
    }
  };
  Refusing files;
  auto writer =
      RecordWriter::Create("f", Compression::kNone, files).ValueOrThrow();
  REQUIRE(writer->Write("payload").ok());
  REQUIRE(writer->Close().ok());
  const Status refused = RecordFiles::Open({"f"}, 1, files).status();
  CHECK(refused.code() == Code::kFailedPrecondition);
  CHECK(Contains(refused.message(), "'f.idx'"));
  files.refuses = false;
  CHECK((*RecordFiles::Open({"f"}, 1, files))->size() == 1);
  REQUIRE(files.Remove("f.idx").ok());
  CHECK((*RecordFiles::Open({"f"}, 1, files))->size() == 1);
}

TEST_CASE("an index as DALI writes it") {
  CHECK(RecordIndexText({0, 19, 35}, 56) == "0 19\n19 16\n35 21\n");
  CHECK(RecordIndexText({}, 0).empty());
}

TEST_CASE("files that are replaced after they were opened") {
  FaultFileSystem files;
  std::string shorter, longer;
  AppendRecord(std::string(5, 'a'), &shorter);
  AppendRecord(std::string(7, 'b'), &longer);
  const std::string one = shorter + longer, other = longer + shorter;
  // Of the same size, but other records.
  for (const auto& [before, after] : {std::pair(one, other), {other, one}}) {
    Write(files, "f", before);
    const auto opened = RecordFiles::Open({"f"}, 1, files);
    REQUIRE(opened.ok());
    Write(files, "f", after);
    for (const int64_t i : {0, 1}) {
      const Status error = (*opened)->Read(i).status();
      CHECK(error.code() == Code::kDataLoss);
      CHECK(error.message().starts_with((*opened)->PlaceOf(i)));
    }
  }
  Write(files, "f", one);
  const auto opened = RecordFiles::Open({"f"}, 1, files);
  REQUIRE(opened.ok());
  Write(files, "f", one + other);
  CHECK(Contains((*opened)->Read(0).status().message(),
                 "'f' has changed: it has 88 bytes, before it had 44"));
  REQUIRE(files.Remove("f").ok());
  CHECK((*opened)->Read(1).status().code() == Code::kUnavailable);
}

TEST_CASE("compressed files are told from records that begin like them") {
  std::mt19937 random(4);
  const OneFile one(random);
  FaultFileSystem files;
  // Of RFC 1952: magic, deflate, no flags.
  Write(files, "gz", std::string("\x1f\x8b\x08\0", 4) + one.bytes);
  const Status gzip = RecordFiles::Open({"gz"}, 1, files).status();
  CHECK(gzip.code() == Code::kUnimplemented);
  CHECK(Contains(gzip.message(), "'gz', byte 0: the file is compressed"));
  CHECK(Contains(gzip.message(), "gunzip"));
  CHECK(Contains(gzip.message(), "in order (datasets::Records)"));
  Write(files, "gz", one.bytes + std::string("\x1f\x8b\x08\0", 4) + one.bytes);
  CHECK(RecordFiles::Open({"gz"}, 1, files).status().code() == Code::kDataLoss);
  for (const int level : {1, 5, 6, 9}) {
    for (const size_t n : {size_t{0}, one.bytes.size()}) {
      std::string bytes(2 * n + 100, '\0');
      uLongf size = bytes.size();
      REQUIRE(compress2(reinterpret_cast<Bytef*>(bytes.data()), &size,
                        reinterpret_cast<const Bytef*>(one.bytes.data()), n,
                        level) == Z_OK);
      Write(files, "z", bytes.substr(0, size));
      const Status zlib = RecordFiles::Open({"z"}, 1, files).status();
      CHECK(zlib.code() == Code::kUnimplemented);
      CHECK(Contains(zlib.message(), "zlib"));
    }
  }
  // Lengths whose first bytes are those of gzip and of zlib.
  for (const size_t size : {0x8b1f, 0x0178, 0x9c78}) {
    std::string bytes;
    AppendRecord(std::string(size, 'x'), &bytes);
    Write(files, "f", bytes);
    const auto opened = RecordFiles::Open({"f"}, 1, files);
    REQUIRE(opened.ok());
    CHECK((*opened)->Read(0)->size() == size);
  }
}

TEST_CASE("of several files' errors the first file's is told") {
  FaultFileSystem files;
  std::string good;
  AppendRecord("x", &good);
  Write(files, "a", good);
  Write(files, "b", good + "x");
  Write(files, "d", "x");
  for (const int threads : {1, 4}) {
    const Status broken =
        RecordFiles::Open({"a", "b", "c", "d"}, threads, files).status();
    CHECK(broken.code() == Code::kDataLoss);
    CHECK(Contains(broken.message(), "'b', byte 17"));
    CHECK(RecordFiles::Open({"a", "c", "d"}, threads, files).status().code() ==
          Code::kNotFound);
  }
  const TemporaryFolder folder;
  CHECK(RecordFiles::Open({folder.path()}).status().code() == Code::kDataLoss);
  const auto none = RecordFiles::Open({});
  REQUIRE(none.ok());
  CHECK((*none)->size() == 0);
}

}  // namespace
}  // namespace sluice
