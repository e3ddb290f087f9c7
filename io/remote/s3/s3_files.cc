#include "io/remote/s3/s3_files.h"

#include <algorithm>
#include <set>
#include <utility>

#include "io/remote/http/url.h"
#include "io/remote/objects/object_file.h"
#include "io/remote/s3/s3_writers.h"

namespace sluice::remote {
namespace {

class LeaseLock : public FileLock {
 public:
  LeaseLock(HeldLeases& leases, Lease lease, Clock& clock,
            std::chrono::seconds length)
      : leases_(leases),
        warning_(lease.warning()),
        held_(std::make_shared<HeldLease>(std::move(lease), clock, length)) {
    leases_.Add(held_);
  }
  ~LeaseLock() override { leases_.Remove(held_); }

  std::string warning() const override { return warning_; }

 private:
  HeldLeases& leases_;
  const std::string warning_;
  const std::shared_ptr<HeldLease> held_;
};

}  // namespace

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

Result<std::string> S3Files::Version(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectVersion version, client_.Head(path));
  return TextOf(version, path);
}

Result<std::map<std::string, std::string>> S3Files::Versions(
    const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectList list, client_.List(folder));
  std::map<std::string, std::string> versions;
  for (const ListedObject& object : list.objects) {
    ObjectVersion version;
    version.size = object.size;
    version.etag = object.etag;
    // As in an answer's header, which always has quotes.
    if (!version.etag.empty() && version.etag.find('"') == std::string::npos) {
      version.etag = '"' + version.etag + '"';
    }
    const std::string name = object.key.substr(object.key.rfind('/') + 1);
    SLUICE_ASSIGN_OR_RETURN(versions[name], TextOf(version, folder));
  }
  versions.erase("");  // the folder itself
  return versions;
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
  SLUICE_RETURN_IF_ERROR(CopyObject(client_, from, to, options_.upload));
  return client_.Delete(from);
}

Status S3Files::Remove(const std::string& path) {
  SLUICE_RETURN_IF_ERROR(client_.Head(path).status());
  return client_.Delete(path);
}

Status S3Files::SyncDirectory(const std::string&) {
  return {};
}

namespace {

std::vector<std::string> NamesIn(const ObjectList& list) {
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

// FileSystem::Listing::left_out.
std::vector<std::string> LeftOutOf(const ObjectList& list,
                                   const std::string& bucket) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& key) {
    paths.push_back("s3://" + bucket + "/" + key);
  };
  std::set<std::string> files;
  for (const ListedObject& object : list.objects) {
    if (object.size == 0) continue;  // some programs put it there for a folder
    if (object.key.ends_with('/')) {
      add(object.key);
    } else {
      files.insert(object.key + "/");
    }
  }
  for (const std::string& prefix : list.common_prefixes) {
    const bool has_name = prefix != "/" && !prefix.ends_with("//");
    if (!has_name || files.contains(prefix)) add(prefix);
  }
  return paths;
}

}  // namespace

Result<std::vector<std::string>> S3Files::List(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectList list, client_.List(path));
  return NamesIn(list);
}

Result<FileSystem::Listing> S3Files::ListAll(const std::string& folder) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectPath at, ParseObjectPath(folder));
  SLUICE_ASSIGN_OR_RETURN(const ObjectList list, client_.List(folder));
  return Listing{NamesIn(list), LeftOutOf(list, at.bucket)};
}

Result<bool> S3Files::Exists(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const ObjectPath object, ParseObjectPath(path));
  if (!object.key.empty()) {
    const Status found = client_.Head(path).status();
    if (found.ok()) return true;
    if (found.code() != Code::kNotFound) return found;
  }
  const auto inside = client_.List(path, 1);
  if (inside.status().code() == Code::kNotFound) return false;
  SLUICE_RETURN_IF_ERROR(inside.status());
  return object.key.empty() || !inside->objects.empty() ||
         !inside->common_prefixes.empty();
}

RetryPolicy S3Files::LeaseRetries(const S3Options& options) {
  RetryPolicy policy = options.retry;
  policy.deadline = std::min<std::chrono::milliseconds>(
      policy.deadline, std::chrono::milliseconds(options.lease) / 4);
  policy.longest_wait = std::min(policy.longest_wait, policy.deadline / 4);
  policy.quiet = policy.deadline;  // who waits for a lease is told of that
  return policy;
}

Result<std::unique_ptr<FileLock>> S3Files::Lock(const std::string& path,
                                                std::string_view holder,
                                                const OnWait& waits) {
  SLUICE_RETURN_IF_ERROR(ParseObject(path).status());
  Lease lease(lease_client_, clock_, path, holder, options_.lease);
  SLUICE_RETURN_IF_ERROR(lease.Acquire(patient_lease_client_, waits));
  std::unique_ptr<FileLock> lock = std::make_unique<LeaseLock>(
      leases_, std::move(lease), clock_, options_.lease);
  return lock;
}

Status S3Files::MakeDirectories(const std::string& path) {
  return ParseObjectPath(path).status();
}

Status S3Files::WriteAtomically(const std::string& path,
                                std::span<const std::string_view> pieces) {
  return PutPieces(client_, path, pieces, options_.upload);
}

// An object is there when all of it is.
Status S3Files::StreamAtomically(
    const std::string& path,
    const std::function<Status(const Append& append)>& write) {
  SLUICE_ASSIGN_OR_RETURN(const auto object, Create(path));
  SLUICE_RETURN_IF_ERROR(
      write([&](std::string_view piece) { return object->Append(piece); }));
  return object->Close();
}

}  // namespace sluice::remote
