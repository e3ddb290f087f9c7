#include "io/remote/s3_files.h"

#include <algorithm>
#include <utility>

#include "io/remote/object_file.h"
#include "io/remote/s3_writers.h"
#include "io/remote/url.h"

namespace sluice::remote {

Result<std::string> S3Files::ReadPrefix(const std::string& path, size_t limit) {
  return ReadObject(client_, path, limit, options_.read);
}

Result<std::unique_ptr<ReadableFile>> S3Files::OpenRead(
    const std::string& path) {
  return OpenObject(client_, path, threads_, options_.read);
}

Result<size_t> S3Files::Size(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectVersion version, client_.Head(path));
  if (version.size != ObjectVersion::kUnknownSize) return version.size;
  return Unavailable("cannot read '" + path + "': its size is unknown");
}

Result<std::unique_ptr<WritableFile>> S3Files::Create(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(ParseObject(path).status());
  return NewObjectWriter(client_, path, options_.upload);
}

Result<std::unique_ptr<WritableFile>> S3Files::OpenAppend(
    const std::string& path) {
  auto bytes = Read(path);
  const bool missing = bytes.status().code() == Code::kNotFound;
  if (missing) {
    // It is there from now on, as elsewhere.
    SLUICE_RETURN_IF_ERROR(client_.Put(path, ""));
    bytes = std::string();
  }
  if (bytes.status().code() == Code::kFailedPrecondition) {
    return Unavailable(bytes.status().message());
  }
  SLUICE_RETURN_IF_ERROR(bytes.status());
  return NewObjectAppender(client_, path, *std::move(bytes), options_.upload,
                           clock_, options_.append_interval);
}

Status S3Files::Rename(const std::string& from, const std::string& to) {
  if (from == to) return client_.Head(from).status();
  SLUICE_RETURN_IF_ERROR(client_.Copy(from, to));
  return client_.Delete(from);
}

Status S3Files::Remove(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(client_.Head(path).status());
  return client_.Delete(path);
}

Status S3Files::SyncDirectory(const std::string&) {
  return {};
}

Result<std::vector<std::string>> S3Files::List(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectList list, client_.List(path));
  std::vector<std::string> names;
  const auto add = [&](std::string_view key) {
    if (key.ends_with('/')) key.remove_suffix(1);
    const std::string_view name = key.substr(key.rfind('/') + 1);
    if (!name.empty()) names.emplace_back(name);
  };
  for (const std::string& folder : list.common_prefixes) add(folder);
  for (const ListedObject& object : list.objects) {
    // One that ends in a slash stands for the folder itself.
    if (!object.key.ends_with('/')) add(object.key);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool S3Files::Exists(const std::string& path) {
  const auto object = ParseObjectPath(path);
  if (!object.ok()) return false;
  if (!object->key.empty()) {
    const Status found = client_.Head(path).status();
    if (found.code() != Code::kNotFound) return found.ok();
  }
  const auto inside = client_.List(path, 1);
  if (!inside.ok()) return false;
  return object->key.empty() || !inside->objects.empty() ||
         !inside->common_prefixes.empty();
}

Result<std::unique_ptr<FileLock>> S3Files::Lock(const std::string&,
                                                std::string_view) {
  return std::make_unique<FileLock>();
}

Status S3Files::MakeDirectories(const std::string& path) {
  return ParseObjectPath(path).status();
}

Status S3Files::WriteAtomically(const std::string& path,
                                std::span<const std::string_view> pieces) {
  return PutPieces(client_, path, pieces, options_.upload);
}

}  // namespace sluice::remote
