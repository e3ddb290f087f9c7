// Examples to bytes and back; bytes that are none.
#include "io/cache/example_bytes.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>

#include "tests/support/error_text.h"
#include "tests/support/random_bytes.h"
#include "tests/support/random_example.h"

namespace sluice {
namespace {

using testing::Below;
using testing::Contains;
using testing::RandomBytes;
using testing::RandomExample;
using testing::Same;
using testing::Spoil;

std::string BytesOf(const Example& example) {
  std::string bytes;
  AppendExampleBytes(example, &bytes);
  return bytes;
}

TEST_CASE("random examples come back, in memory of their own") {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    CAPTURE(i);
    const Example example = RandomExample(random);
    const std::string bytes = BytesOf(example);
    auto parsed = ParseExampleBytes(bytes);
    REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
    CHECK(Same(*parsed, example));
    Spoil(&*parsed);
    CHECK(BytesOf(example) == bytes);
  }
}

// Numbers as the grammar has them.
std::string Numbers(std::initializer_list<uint64_t> numbers) {
  std::string bytes;
  for (const uint64_t number : numbers) {
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(number >> 8 * i);
  }
  return bytes;
}

std::string Entry(const std::string& name, const std::string& dtype,
                  std::initializer_list<uint64_t> dims,
                  const std::string& data) {
  return Numbers({name.size()}) + name + Numbers({dtype.size()}) + dtype +
         Numbers({dims.size()}) + Numbers(dims) + data;
}

TEST_CASE("the bytes are those of the grammar") {
  Example example = {{"image", Tensor::Array<uint8_t>({1, 2}, {7, 200})},
                     {"", Tensor::Scalar<int64_t>(-2)}};
  example.set_passed_over(3);
  example.set_whole_rows(5);
  CHECK(BytesOf(example) ==
        Numbers({3, 5, 2}) + Entry("image", "uint8", {1, 2}, "\x07\xc8") +
            Entry("", "int64", {}, Numbers({~uint64_t{1}})));
}

std::string ErrorOf(const std::string& bytes) {
  const auto parsed = ParseExampleBytes(bytes);
  if (parsed.ok()) return "(no error)";
  CHECK(parsed.status().code() == Code::kDataLoss);
  return parsed.status().message();
}

TEST_CASE("bytes that end early or late are no example") {
  std::mt19937 random(2);
  for (int i = 0; i < 40; ++i) {
    const std::string bytes = BytesOf(RandomExample(random));
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      CHECK(ErrorOf(bytes.substr(0, cut)) ==
            "the bytes of an example end too early");
    }
    CHECK(ErrorOf(bytes + '\0') == "there are bytes behind an example");
  }
}

TEST_CASE("what is parsed of damaged bytes is what they say") {
  std::mt19937 random(3);
  int parsed_ones = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = Below(random, 10) == 0
                            ? RandomBytes(random, Below(random, 100))
                            : BytesOf(RandomExample(random));
    for (size_t n = 1 + Below(random, 3); n > 0 && !bytes.empty(); --n) {
      bytes[Below(random, bytes.size())] ^=
          static_cast<char>(1 << Below(random, 8));
    }
    const auto parsed = ParseExampleBytes(bytes);
    parsed_ones += parsed.ok();
    if (parsed.ok()) CHECK(BytesOf(*parsed) == bytes);
  }
  CHECK(parsed_ones > 1000);
}

TEST_CASE("hostile numbers") {
  const uint64_t most = INT64_MAX, negative = ~uint64_t{0};
  const auto of = [](const std::string& entries, uint64_t count = 1) {
    return ErrorOf(Numbers({0, 0, count}) + entries);
  };
  const std::string early = "the bytes of an example end too early";
  const std::string label = Entry("label", "int32", {}, "1234");
  CHECK(of(label) == "(no error)");
  CHECK(of(label, most) == early);
  CHECK(Contains(of(label, negative), "number -1, wanted 0 or more"));
  CHECK(of(Numbers({most}) + "name") == early);
  CHECK(Contains(of(Numbers({negative}) + "name"), "number -1"));
  CHECK(Contains(of(Entry("a", "int33", {}, "1234")), "int33"));
  CHECK(Contains(of(Entry("a", "int8", {1, 1, 1, 1, 1, 1, 1, 1, 1}, "1")),
                 "9 dimensions, wanted at most 8"));
  CHECK(Contains(of(Entry("a", "int8", {negative}, "1")), "number -1"));
  CHECK(of(Entry("a", "int8", {uint64_t{1} << 46}, "1")) == early);
  for (const uint64_t other : {uint64_t{0}, uint64_t{1} << 40, most}) {
    CHECK(Contains(of(Entry("a", "int32", {most, other}, "1")),
                   "larger than any tensor can be"));
  }
  CHECK(Contains(of(Entry("a", "bool", {2}, std::string("\0\x02", 2))),
                 "bool other than 0 and 1"));
  CHECK(Contains(of(label + label, 2), "'label' twice"));
}

}  // namespace
}  // namespace sluice
