// Streams that come in pieces, and zeros behind them.
#include "io/files/gzip.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include "tests/support/compressed.h"
#include "tests/support/random_bytes.h"

namespace sluice {
namespace {

using testing::Compressed;

// What comes of data that arrive in pieces of this size.
Result<std::string> Inflated(std::string_view data, Compression compression,
                             size_t piece) {
  Inflater inflater(compression);
  std::string all, out(1000, '?');
  bool used = true;
  while (!data.empty()) {
    std::string_view in = data.substr(0, piece);
    data.remove_prefix(in.size());
    for (size_t got = out.size(); got == out.size();) {
      SLUICE_ASSIGN_OR_RETURN(got,
                              inflater.Inflate(&in, out.data(), out.size()));
      all.append(out, 0, got);
    }
    used = used && in.empty();
  }
  CHECK(used);
  SLUICE_RETURN_IF_ERROR(inflater.CheckEnd());
  return all;
}

TEST_CASE("zeros behind gzip's members are padding") {
  std::mt19937 random(1);
  const std::string first = testing::RandomBytes(random, 5000);
  const std::string second = testing::RandomBytes(random, 3000);
  const std::string a = Compressed(first, Compression::kGzip);
  const std::string b = Compressed(second, Compression::kGzip);
  for (const size_t piece : {1, 4096}) {
    const auto read = [&](const std::string& data) {
      return Inflated(data, Compression::kGzip, piece);
    };
    for (const size_t zeros : {0, 1, 511, 300'000}) {
      CAPTURE(piece);
      CAPTURE(zeros);
      const std::string padding(zeros, '\0');
      CHECK(read(a + b + padding).ValueOrThrow() == first + second);
      CHECK(read(a + padding + b + padding).ValueOrThrow() == first + second);
      // Nothing else is, nor do they stand for a member that is cut short.
      CHECK(read(a + padding + "x").status().code() == Code::kDataLoss);
      CHECK(read(a + padding + b.substr(0, 5)).status().code() ==
            Code::kDataLoss);
    }
    CHECK(read(std::string(1, '\0') + a).status().code() == Code::kDataLoss);
    // zlib's streams know none.
    CHECK(Inflated(Compressed(first, Compression::kZlib) + '\0',
                   Compression::kZlib, piece)
              .status()
              .code() == Code::kDataLoss);
  }
}

}  // namespace
}  // namespace sluice
