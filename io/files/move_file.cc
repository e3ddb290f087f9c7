#include "io/files/move_file.h"

#include <memory>

#include "engine/catch_errors.h"
#include "io/files/read_pieces.h"

namespace sluice {

Status MoveFile(const std::string& from, const std::string& to,
                FileSystem& files) {
  Status renamed = files.Rename(from, to);
  if (renamed.code() != Code::kInvalidArgument) return renamed;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                          files.OpenRead(from));
  SLUICE_RETURN_IF_ERROR(
      files.StreamAtomically(to, [&](const FileSystem::Append& append) {
        return CatchErrors([&] { return ReadPieces(*file, from, append); });
      }));
  return files.Remove(from);
}

}  // namespace sluice
