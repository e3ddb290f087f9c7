// Examples read from the middle of a file, in pieces, beside those of the same
// bytes in memory: whole, cut off and damaged ones.
#include "io/cache/record_source.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "io/cache/cache_segment.h"
#include "tests/support/random_bytes.h"
#include "tests/support/random_example.h"

namespace sluice {
namespace {

using testing::Below;
using testing::RandomBytes;
using testing::RandomExample;
using testing::Same;

// A file in memory that counts what is read of it.
class CountedFile : public ReadableFile {
 public:
  explicit CountedFile(std::string bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  Result<size_t> ReadAt(uint64_t offset, void* out, size_t n) const override {
    const size_t got =
        offset < bytes_.size() ? std::min(n, bytes_.size() - offset) : 0;
    std::memcpy(out, bytes_.data() + std::min(offset, size()), got);
    read += got;
    ++reads;
    return got;
  }

  mutable uint64_t read = 0;
  mutable int reads = 0;

 private:
  const std::string bytes_;
};

// Of a few tensors, some of them large, and around what is read at once.
Example LargeExample(std::mt19937& random) {
  Example example = RandomExample(random);
  constexpr size_t kSizes[] = {0,      1,       4000,    4096,    65'000,
                               65'536, 131'072, 131'073, 262'144, 400'001};
  for (size_t n = 1 + Below(random, 3); n > 0; --n) {
    const auto size = static_cast<int64_t>(kSizes[Below(random, 10)]);
    Tensor tensor(DType::kUInt8, {size});
    for (uint8_t& byte : tensor.values<uint8_t>()) {
      byte = static_cast<uint8_t>(random());
    }
    // Names that begin near the end of what is read at first, too.
    example.Set(RandomBytes(random, Below(random, n == 1 ? 5000 : 9)), tensor);
  }
  return example;
}

struct Stored {
  int64_t number = 0;
  std::string record;
  uint64_t offset = 0;
  std::string bytes;  // of the file
};

Stored Store(std::mt19937& random, const Example& example) {
  Stored stored;
  stored.number = static_cast<int64_t>(Below(random, 1000));
  stored.record = RecordOf(stored.number, example);
  stored.offset = Below(random, 100);
  stored.bytes = RandomBytes(random, stored.offset) + stored.record +
                 RandomBytes(random, Below(random, 100));
  return stored;
}

std::optional<Example> Read(const Stored& stored, const CountedFile& file,
                            std::string* buffer) {
  return ReadExample(stored.number, file, stored.offset, stored.record.size(),
                     buffer);
}

TEST_CASE("examples of any sizes come from files as from memory") {
  std::mt19937 random(1);
  std::string buffer;
  for (int i = 0; i < 300; ++i) {
    const Example example =
        i % 3 == 0 ? RandomExample(random) : LargeExample(random);
    const Stored stored = Store(random, example);
    const CountedFile file(stored.bytes);
    const auto read = Read(stored, file, &buffer);
    REQUIRE(read);
    CHECK(Same(*read, example));
    // Each byte once.
    CHECK(file.read == stored.record.size());
    CHECK(file.reads <= 6 + static_cast<int>(example.size()) +
                            static_cast<int>(stored.record.size() >> 16));
    CHECK_FALSE(ReadExample(stored.number + 1, file, stored.offset,
                            stored.record.size(), &buffer));
    CHECK_FALSE(ReadExample(stored.number, file, stored.offset,
                            stored.record.size() - 1, &buffer));
    CHECK_FALSE(ReadExample(stored.number, file, stored.offset,
                            stored.record.size() + 1, &buffer));
    CHECK_FALSE(ReadExample(stored.number, file, stored.offset + 1,
                            stored.record.size(), &buffer));
  }
  // Large ones do not pass through the buffer.
  CHECK(buffer.size() <= 80'000);
}

TEST_CASE("records that are cut off or damaged anywhere are none") {
  std::mt19937 random(2);
  std::string buffer;
  for (int i = 0; i < 400; ++i) {
    const Example example =
        i % 3 == 0 ? RandomExample(random) : LargeExample(random);
    Stored stored = Store(random, example);
    const size_t length = stored.record.size();
    if (i % 4 == 0) {
      stored.bytes.resize(stored.offset + Below(random, length - 1));
    } else {
      // Mostly near the ends, where lengths, names and checksums are.
      const size_t at = i % 4 == 1 ? Below(random, length - 1)
                        : i % 4 == 2
                            ? Below(random, std::min<size_t>(length - 1, 200))
                            : length - 1 - Below(random, 7);
      stored.bytes[stored.offset + at] ^=
          static_cast<char>(1 << Below(random, 8));
    }
    const CountedFile file(stored.bytes);
    CHECK_FALSE(Read(stored, file, &buffer));
    CHECK_FALSE(ExampleOf(
        stored.number,
        std::string_view(stored.bytes).substr(stored.offset, length)));
  }
}

TEST_CASE("a checksum that fits makes no example of other bytes") {
  std::mt19937 random(3);
  std::string buffer;
  for (int i = 0; i < 300; ++i) {
    const int64_t number = 7;
    std::string payload(reinterpret_cast<const char*>(&number), sizeof(number));
    AppendExampleBytes(
        i % 3 == 0 ? RandomExample(random) : LargeExample(random), &payload);
    const size_t at = Below(random, std::min<size_t>(payload.size() - 1, 300));
    payload[at] = static_cast<char>(random());
    if (i % 5 == 0) payload.resize(Below(random, payload.size() - 1));
    std::string record;
    AppendRecord(payload, &record);
    const auto in_memory = ExampleOf(number, record);
    const auto in_file =
        ReadExample(number, CountedFile(record), 0, record.size(), &buffer);
    REQUIRE(in_memory.has_value() == in_file.has_value());
    if (in_file) CHECK(Same(*in_memory, *in_file));
  }
}

}  // namespace
}  // namespace sluice
