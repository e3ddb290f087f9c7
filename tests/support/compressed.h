// What gzip and zlib make of bytes.
#ifndef SLUICE_TESTS_SUPPORT_COMPRESSED_H_
#define SLUICE_TESTS_SUPPORT_COMPRESSED_H_

#include <doctest/doctest.h>
#include <zlib.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/gzip.h"
#include "tests/support/random_bytes.h"

namespace sluice::testing {

// One gzip member or zlib stream.
inline std::string Compressed(std::string_view bytes, Compression format,
                              int level = 6) {
  z_stream stream{};
  const int window = format == Compression::kGzip ? 15 + 16 : 15;
  REQUIRE(deflateInit2(&stream, level, Z_DEFLATED, window, 8,
                       Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Several of them, of any levels, that begin anywhere; where each begins.
struct Pieces {
  std::string bytes;
  std::vector<size_t> begins;  // in `bytes`
  std::vector<size_t> from;    // in what was compressed

  Pieces(std::string_view all, size_t count, Compression format,
         std::mt19937& random) {
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t left = all.size() - at;
      const size_t size = i + 1 < count ? Below(random, left + 1) : left;
      begins.push_back(bytes.size());
      from.push_back(at);
      bytes += Compressed(all.substr(at, size), format,
                          static_cast<int>(Below(random, 10)));
      at += size;
    }
  }
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_COMPRESSED_H_
