// What columns of CSV files are inferred to be: the first type that loses
// nothing of their whole numbers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "io/records/csv_dataset.h"
#include "tests/support/random.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Random;
using testing::TemporaryFolder;

__extension__ using Wide = unsigned __int128;

// A value, and which types hold it, known from how it was made.
struct Value {
  std::string text;
  bool int64 = false, float32 = true, float64 = true;
  // Of whole numbers, with a sign.
  bool whole = false, negative = false;
  Wide magnitude = 0;
};

std::string Decimal(Wide number) {
  std::string digits;
  do {
    digits.insert(0, 1, static_cast<char>('0' + int(number % 10)));
    number /= 10;
  } while (number > 0);
  return digits;
}

// Of up to 90 bits, of which the first and the last that are set are so many
// apart as decides what holds it.
Value RandomWhole(Random& random) {
  Value value = {.whole = true, .negative = random.Chance(3)};
  const int64_t set =
      random.Chance(2) ? random.Between(1, 26) : random.Between(50, 66);
  Wide bits = 1;
  for (int64_t i = 1; i < set; ++i) bits = bits << 1 | random.Between(0, 1);
  const int64_t zeros = random.Chance(2) ? 0 : random.Between(0, 24);
  value.magnitude = (bits | 1) << zeros;
  value.float32 = set <= 24;
  value.float64 = set <= 53;
  const Wide most = Wide{1} << 63;
  value.int64 = value.magnitude < most + (value.negative ? 1 : 0);
  value.text =
      fmt::format("{}{}{}{}", random.Chance(4) ? " " : "",
                  value.negative ? "-" : (random.Chance(5) ? "+" : ""),
                  random.Chance(5) ? "00" : "", Decimal(value.magnitude));
  return value;
}

Value RandomOther(Random& random) {
  static const std::vector<Value> kValues = {
      {.text = "0.5"},
      {.text = "-0.1"},
      {.text = "1e-300"},
      {.text = "nan"},
      {.text = "-INF"},
      {.text = "1e3"},
      {.text = "12345678.5"},
      {.text = "16777215.75"},
      {.text = "16777216.0"},
      {.text = "3e9"},
      {.text = "16777217.0", .float32 = false},
      {.text = "1700000000.123", .float32 = false},
      {.text = "1e30", .float32 = false},
      {.text = "9007199254740993.0"},  // 2^53, in float64 as well
      {.text = "-1e300", .float32 = false},
      {.text = "1e400", .float32 = false, .float64 = false},
      {.text = "word", .float32 = false, .float64 = false},
      {.text = "1 2", .float32 = false, .float64 = false},
      {.text = "0", .int64 = true, .whole = true},
      {.text = "-0", .int64 = true, .whole = true},
  };
  return kValues[random.Between(0, int64_t(kValues.size()) - 1)];
}

Dataset Inferred(const TemporaryFolder& folder,
                 const std::vector<Value>& column) {
  const std::string path = folder / "t.csv";
  std::ofstream file(path, std::ios::binary);
  file << "x\n";
  for (const Value& value : column) file << value.text << "\n";
  file.close();
  return datasets::Csv({path}, {.infer_rows = 1000});
}

// Whether what was read is the whole number, exactly.
bool IsSame(const Tensor& read, const Value& value) {
  if (read.dtype() == DType::kInt64) {
    const int64_t number = read.IntAt(0);
    const auto bits = static_cast<uint64_t>(number);
    return (number < 0 ? ~bits + 1 : bits) == value.magnitude &&
           (number < 0) == (value.negative && value.magnitude != 0);
  }
  // Of 64 bits, more than are set in what a float32 or float64 holds.
  const auto wanted = static_cast<long double>(value.magnitude);
  const long double number = read.dtype() == DType::kFloat32
                                 ? *read.data<float>()
                                 : *read.data<double>();
  return number == (value.negative ? -wanted : wanted);
}

TEST_CASE("an inferred column holds every whole number that is in it") {
  std::array<int, 4> seen{};
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const TemporaryFolder folder;
    std::vector<Value> column;
    bool int64 = true, float32 = true, float64 = true;
    const int64_t rows = random.Between(1, 4);
    const int64_t wholes = random.Between(1, 4);  // of four, on average
    for (int64_t i = 0; i < rows; ++i) {
      column.push_back(random.Between(1, 4) <= wholes ? RandomWhole(random)
                                                      : RandomOther(random));
      int64 = int64 && column.back().int64;
      float32 = float32 && column.back().float32;
      float64 = float64 && column.back().float64;
    }
    const Dataset dataset = Inferred(folder, column);
    Iterator iterator = dataset.MakeIterator();
    Example example;
    for (const Value& value : column) {
      CAPTURE(value.text);
      REQUIRE(iterator.Next(&example).ValueOrThrow());
      const Tensor& x = example["x"];
      if (int64 || float32 || float64) {
        REQUIRE(x.dtype() == (int64     ? DType::kInt64
                              : float32 ? DType::kFloat32
                                        : DType::kFloat64));
        if (value.whole) REQUIRE(IsSame(x, value));
      } else {
        REQUIRE(x.dtype() == DType::kUInt8);
        REQUIRE(BytesOf(x) == value.text);
      }
    }
    ++seen[int64 ? 0 : float32 ? 1 : float64 ? 2 : 3];
  }
  for (const int count : seen) CHECK(count > 50);
}

}  // namespace
}  // namespace sluice
