#include "io/files/byte_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/files/without_query.h"

namespace sluice {
namespace {

// Pieces grow while they are read one after another: little is read in vain
// where most of the file is passed over.
constexpr size_t kLeastPiece = size_t{4} << 10;
constexpr size_t kMostPiece = size_t{256} << 10;

}  // namespace

ByteStream::ByteStream(const std::string& path,
                       std::unique_ptr<ReadableFile> file)
    : path_(WithoutQuery(path)),
      file_(std::move(file)),
      next_piece_(kLeastPiece) {}

Result<std::unique_ptr<ByteStream>> ByteStream::Open(const std::string& path,
                                                     Detect detect,
                                                     FileSystem& files) {
  SLUICE_ASSIGN_OR_RETURN(auto file, files.OpenRead(path));
  std::unique_ptr<ByteStream> stream(new ByteStream(path, std::move(file)));
  SLUICE_RETURN_IF_ERROR(stream->ReadPiece());
  const Compression compression = detect(stream->piece_);
  if (compression == Compression::kNone) {
    stream->ready_ = stream->piece_;
  } else {
    stream->inflater_.emplace(compression);
    stream->compressed_ = stream->piece_;
    stream->decompressed_.resize(kMostPiece);
  }
  return stream;
}

// The next piece of the file, empty at its end.
Status ByteStream::ReadPiece() {
  piece_.resize(std::min<uint64_t>(next_piece_, file_->size() - piece_end_));
  for (size_t done = 0; done < piece_.size();) {
    SLUICE_ASSIGN_OR_RETURN(
        const size_t got,
        file_->ReadAt(piece_end_, piece_.data() + done, piece_.size() - done));
    if (got == 0) {
      return DataLoss(
          fmt::format("'{}', byte {}: the file ends here; it had {} bytes when "
                      "it was opened",
                      path_, piece_end_, file_->size()));
    }
    done += got;
    piece_end_ += got;
  }
  next_piece_ = std::min(2 * next_piece_, kMostPiece);
  return {};
}

Status ByteStream::Decompress() {
  for (;;) {
    const auto got = inflater_->Inflate(&compressed_, decompressed_.data(),
                                        decompressed_.size());
    if (!got.ok()) return WithPlace(got.status());
    ready_ = std::string_view(decompressed_).substr(0, *got);
    if (!ready_.empty()) return {};
    SLUICE_RETURN_IF_ERROR(ReadPiece());
    compressed_ = piece_;
    if (compressed_.empty()) return WithPlace(inflater_->CheckEnd());
  }
}

// That of the file up to which its bytes are used.
Status ByteStream::WithPlace(const Status& error) const {
  return error.WithContext(
      fmt::format("'{}', byte {}", path_, piece_end_ - compressed_.size()));
}

Result<std::string_view> ByteStream::Peek() {
  if (!ready_.empty()) return ready_;
  if (inflater_) {
    SLUICE_RETURN_IF_ERROR(Decompress());
  } else {
    SLUICE_RETURN_IF_ERROR(ReadPiece());
    ready_ = piece_;
  }
  return ready_;
}

void ByteStream::Take(size_t n) {
  ready_.remove_prefix(n);
  position_ += n;
}

Result<uint64_t> ByteStream::Append(uint64_t n, std::string* out) {
  uint64_t done = 0;
  while (done < n) {
    SLUICE_ASSIGN_OR_RETURN(std::string_view bytes, Peek());
    if (bytes.empty()) break;
    bytes = bytes.substr(0, n - done);
    if (out != nullptr) out->append(bytes);
    Take(bytes.size());
    done += bytes.size();
  }
  return done;
}

Result<uint64_t> ByteStream::Skip(uint64_t n) {
  if (inflater_) return Append(n, nullptr);
  const size_t in_memory = std::min<uint64_t>(n, ready_.size());
  Take(in_memory);
  const uint64_t behind = std::min(n - in_memory, file_->size() - piece_end_);
  if (behind >= next_piece_) next_piece_ = kLeastPiece;
  piece_end_ += behind;
  position_ += behind;
  return in_memory + behind;
}

std::string ByteStream::Place(uint64_t position) const {
  return fmt::format("'{}', {}byte {}", path_, inflater_ ? "decompressed " : "",
                     position);
}

}  // namespace sluice
