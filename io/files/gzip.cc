#include "io/files/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

// zlib counts bytes in 32 bits.
constexpr size_t kMaxChunk = std::numeric_limits<uInt>::max();
// Window size, and 16 for a gzip header instead of zlib's.
constexpr int kGzipWindow = 15 + 16;

}  // namespace

bool IsGzip(std::string_view bytes) {
  return bytes.substr(0, 2) == "\x1f\x8b";
}

uint32_t Crc32(uint32_t crc, std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct GzipReader::State {
  z_stream stream{};
  std::string_view rest;  // not given to zlib yet
  bool ready = false;     // did inflateInit2 work?
  bool ended = false;     // behind the last member
};

GzipReader::GzipReader(std::string_view compressed)
    : state_(std::make_unique<State>()) {
  state_->rest = compressed;
  state_->ready = inflateInit2(&state_->stream, kGzipWindow) == Z_OK;
}

GzipReader::~GzipReader() {
  if (state_->ready) inflateEnd(&state_->stream);
}

Result<size_t> GzipReader::Read(void* out, size_t n) {
  if (!state_->ready) return ResourceExhausted("gzip: out of memory");
  z_stream& stream = state_->stream;
  // zlib refuses a null pointer even for no bytes.
  Bytef none;
  stream.next_out = out != nullptr ? static_cast<Bytef*>(out) : &none;
  size_t done = 0;
  // One more call with no room left meets an end that follows directly.
  while (!state_->ended) {
    if (stream.avail_in == 0) {
      const size_t chunk = std::min(state_->rest.size(), kMaxChunk);
      stream.next_in =
          reinterpret_cast<Bytef*>(const_cast<char*>(state_->rest.data()));
      stream.avail_in = static_cast<uInt>(chunk);
      state_->rest.remove_prefix(chunk);
    }
    const size_t room = std::min(n - done, kMaxChunk);
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      if (stream.avail_in == 0 && state_->rest.empty()) {
        state_->ended = true;
      } else if (inflateReset(&stream) != Z_OK) {
        return Internal("gzip: cannot reset the decoder");
      }
    } else if (result == Z_BUF_ERROR) {
      // No progress: either `out` is full or the data stop early.
      if (done == n) break;
      return DataLoss("the gzip data stop early; the file is truncated");
    } else if (result != Z_OK) {
      return DataLoss(
          fmt::format("the gzip data are corrupt ({})",
                      stream.msg != nullptr ? stream.msg : "invalid stream"));
    } else if (done == n && room == 0) {
      break;
    }
  }
  return done;
}

}  // namespace sluice
