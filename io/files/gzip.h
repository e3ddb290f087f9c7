// Decompression of gzip data (RFC 1952) that is in memory.
#ifndef SLUICE_IO_GZIP_H_
#define SLUICE_IO_GZIP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/status.h"

namespace sluice {

// Does this start like a gzip file?
bool IsGzip(std::string_view bytes);

// Deflate cannot expand by more than this: a bound on what to allocate.
inline constexpr size_t kMaxGzipRatio = 1032;

// Reads the decompressed bytes in order; checks every member's CRC-32 and
// length when it ends. One thread at a time; `compressed` must outlive it.
class GzipReader {
 public:
  explicit GzipReader(std::string_view compressed);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Up to n bytes into `out`; fewer only at the end of the data. kDataLoss when
  // they are corrupt or stop early.
  Result<size_t> Read(void* out, size_t n);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The CRC-32 of gzip and zip of bytes that follow those of `crc`, 0 at first.
uint32_t Crc32(uint32_t crc, std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_GZIP_H_
