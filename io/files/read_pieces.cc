#include "io/files/read_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/files/without_query.h"

namespace sluice {

Status ReadPieces(const ReadableFile& file, const std::string& path,
                  const std::function<Status(std::string_view piece)>& take) {
  constexpr size_t kPieceBytes = 4 << 20;
  const uint64_t size = file.size();
  std::string piece(std::min<uint64_t>(size, kPieceBytes), '\0');
  for (uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min<uint64_t>(size - at, kPieceBytes));
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            file.ReadAt(at, piece.data(), piece.size()));
    if (got < piece.size()) {
      return DataLoss(
          fmt::format("'{}' ends after {} of {} bytes: it is being "
                      "changed; try again",
                      WithoutQuery(path), at + got, size));
    }
    SLUICE_RETURN_IF_ERROR(take(piece));
  }
  return {};
}

}  // namespace sluice
