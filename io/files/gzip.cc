#include "io/files/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace sluice {
namespace {

// zlib counts bytes in 32 bits.
constexpr size_t kMaxChunk = std::numeric_limits<uInt>::max();
// The window's size is 2 to the power of this; more by 16 says that the data
// have a gzip header instead of zlib's.
constexpr int kWindowBits = 15, kGzipHeader = 16;
constexpr std::string_view kGzipName = "gzip";  // for messages

int WindowBits(Compression compression) {
  SLUICE_CHECK(compression != Compression::kNone);
  return compression == Compression::kGzip ? kWindowBits + kGzipHeader
                                           : kWindowBits;
}

// RFC 1950: deflate with a window of at most 32 KiB, and 31 divides the two
// bytes.
bool IsZlib(std::string_view bytes) {
  if (bytes.size() < 2) return false;
  const auto method = static_cast<uint8_t>(bytes[0]);
  const auto flags = static_cast<uint8_t>(bytes[1]);
  return (method & 0x0f) == 8 && method >> 4 <= 7 &&
         (method * 256 + flags) % 31 == 0;
}

}  // namespace

bool IsGzip(std::string_view bytes) {
  return bytes.substr(0, 2) == "\x1f\x8b";
}

Compression CompressionOf(std::string_view bytes) {
  if (IsGzip(bytes)) return Compression::kGzip;
  return IsZlib(bytes) ? Compression::kZlib : Compression::kNone;
}

uint32_t Crc32(uint32_t crc, std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct Inflater::State {
  z_stream stream{};
  std::string_view format;  // for messages
  bool ready = false;       // did inflateInit2 work?
  bool between = false;     // behind one stream, and before the next
};

Inflater::Inflater(Compression compression)
    : state_(std::make_unique<State>()) {
  state_->format =
      compression == Compression::kGzip ? kGzipName : std::string_view("zlib");
  state_->ready =
      inflateInit2(&state_->stream, WindowBits(compression)) == Z_OK;
}

Inflater::~Inflater() {
  if (state_->ready) inflateEnd(&state_->stream);
}

Result<size_t> Inflater::Inflate(std::string_view* in, void* out, size_t n) {
  auto& [stream, format, ready, between] = *state_;
  int result = ready ? Z_OK : Z_MEM_ERROR;
  // zlib refuses a null pointer even for no bytes.
  Bytef none;
  stream.next_out = out != nullptr ? static_cast<Bytef*>(out) : &none;
  size_t done = 0;
  // Until no byte moves, which zlib calls Z_BUF_ERROR: `in` is used or `out` is
  // full. In the call with no room left it meets an end that follows directly.
  while (result == Z_OK) {
    // Files come padded with zeros from tapes and other blocks.
    if (between && format == kGzipName) {
      in->remove_prefix(std::min(in->find_first_not_of('\0'), in->size()));
    }
    const size_t chunk = std::min(in->size(), kMaxChunk);
    const size_t room = std::min(n - done, kMaxChunk);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in->data()));
    stream.avail_in = static_cast<uInt>(chunk);
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    const size_t used = chunk - stream.avail_in;
    in->remove_prefix(used);
    done += room - stream.avail_out;
    if (used > 0) between = false;
    if (result == Z_STREAM_END) {
      between = true;
      result = inflateReset(&stream);
    }
  }
  if (result == Z_BUF_ERROR) return done;
  if (result == Z_MEM_ERROR) {
    return ResourceExhausted(fmt::format("{}: out of memory", format));
  }
  return DataLoss(
      fmt::format("the {} data are corrupt ({})", format,
                  stream.msg != nullptr ? stream.msg : "invalid stream"));
}

Status Inflater::CheckEnd() const {
  if (state_->between) return {};
  return DataLoss(fmt::format("the {} data stop early; the file is truncated",
                              state_->format));
}

struct Deflater::State {
  z_stream stream{};
};

Deflater::Deflater(Compression compression)
    : state_(std::make_unique<State>()) {
  constexpr int kMemory = 8;  // zlib's default
  const int result =
      deflateInit2(&state_->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                   WindowBits(compression), kMemory, Z_DEFAULT_STRATEGY);
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  SLUICE_CHECK(result == Z_OK);
}

Deflater::~Deflater() {
  deflateEnd(&state_->stream);
}

void Deflater::Deflate(std::string_view in, std::string* out) {
  for (; in.size() > kMaxChunk; in.remove_prefix(kMaxChunk)) {
    Run(in.substr(0, kMaxChunk), /*last=*/false, out);
  }
  Run(in, /*last=*/false, out);
}

void Deflater::Finish(std::string* out) {
  Run({}, /*last=*/true, out);
}

void Deflater::Run(std::string_view in, bool last, std::string* out) {
  z_stream& stream = state_->stream;
  std::array<char, size_t{16} << 10> piece;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  // Until it leaves room: all that it had to say has been said.
  int result = Z_OK;
  do {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    result = deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
    SLUICE_CHECK(result != Z_STREAM_ERROR);
    out->append(piece.data(), piece.size() - stream.avail_out);
  } while (stream.avail_out == 0 && result != Z_STREAM_END);
}

Result<size_t> GzipReader::Read(void* out, size_t n) {
  SLUICE_ASSIGN_OR_RETURN(const size_t got, inflater_.Inflate(&rest_, out, n));
  if (got < n) SLUICE_RETURN_IF_ERROR(inflater_.CheckEnd());
  return got;
}

}  // namespace sluice
