// Compression by gzip (RFC 1952) and zlib (RFC 1950), and decompression.
#ifndef SLUICE_IO_FILES_GZIP_H_
#define SLUICE_IO_FILES_GZIP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/files/compression.h"

namespace sluice {

// Whether `bytes` start like a gzip file.
bool IsGzip(std::string_view bytes);
// How a file that starts like this is compressed. zlib's header is two bytes,
// and one of a thousand other files starts like it: ask only where nothing else
// says what the file is.
Compression CompressionOf(std::string_view bytes);

// The most that Deflate data can expand by: a bound on what to allocate.
inline constexpr size_t kMaxGzipRatio = 1032;

// Decompresses data that come in pieces. Several streams one after another, as
// gzip's members are, make one; zeros between and behind these are padding, as
// gzip(1) has it. Checks each stream's checksum, and gzip's length, at the
// stream's end: its bytes have been given out by then. One thread at a time.
class Inflater {
 public:
  explicit Inflater(Compression compression);  // not kNone
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Writes up to n bytes to `out`, and takes what it uses from the front of
  // `*in`. Returns fewer than n only when all of `*in` is used. kDataLoss when
  // the data are corrupt; `*in` is then what is behind the fault.
  Result<size_t> Inflate(std::string_view* in, void* out, size_t n);
  // kDataLoss where the data must not end behind what was used.
  Status CheckEnd() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Compresses data that come in pieces, at zlib's default level. One thread at a
// time.
class Deflater {
 public:
  explicit Deflater(Compression compression);  // not kNone
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  // Appends compressed bytes to `out`; those for the last of `in` may come
  // later.
  void Deflate(std::string_view in, std::string* out);
  // Appends the rest. Nothing may be called afterwards.
  void Finish(std::string* out);

 private:
  struct State;
  void Run(std::string_view in, bool last, std::string* out);
  std::unique_ptr<State> state_;
};

// Reads decompressed gzip data in order. One thread at a time; `compressed`
// must outlive it.
class GzipReader {
 public:
  explicit GzipReader(std::string_view compressed) : rest_(compressed) {}

  // Reads up to n bytes into `out`; fewer only at the end of the data.
  // kDataLoss when these are corrupt or stop early.
  Result<size_t> Read(void* out, size_t n);

 private:
  std::string_view rest_;  // not used yet
  Inflater inflater_{Compression::kGzip};
};

// The CRC-32 of gzip and zip. `crc` is that of the bytes before, 0 at first.
uint32_t Crc32(uint32_t crc, std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_GZIP_H_
