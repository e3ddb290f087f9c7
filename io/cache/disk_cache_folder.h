// Shares out the room in a folder of cached examples. Internal to io.
//
//   HASH-WRITER.examples  the examples that a DiskCache has added
//   HASH-WRITER.index     where they are in it
//   HASH-WRITER.lock      held as long as that DiskCache lives, also where it
//                         has added none; holds how many bytes the two files
//                         above may come to
//   HASH.used             when the key was last opened, by a count of openings
//   lock                  held by who looks at all of it or changes its room
//
// HASH is of the key, WRITER is random: 16 hexadecimal digits each. Other files
// there are left alone.
#ifndef SLUICE_IO_CACHE_DISK_CACHE_FOLDER_H_
#define SLUICE_IO_CACHE_DISK_CACHE_FOLDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "io/files/file.h"

namespace sluice {

// One DiskCache's place in the folder. One thread at a time, but for the const
// functions. The file system must outlive it.
class DiskCacheFolder {
 public:
  // keeps_more: what the folder holds beyond max_bytes is left to whoever gave
  // a greater limit.
  DiskCacheFolder(std::string folder, uint64_t key_hash, uint64_t max_bytes,
                  FileSystem& files, bool keeps_more);
  // The key is not in use any more, as far as this one is concerned.
  ~DiskCacheFolder();

  // Makes the folder where it is missing, and holds the limit there, which may
  // have been greater before; from now on the key is in use. Says how many
  // bytes it has removed. After an error it may be read, and be removed by
  // others meanwhile.
  Result<uint64_t> Enter();
  // Names new files its own; those of before are idle from now on. As Enter.
  Status BeginSegment();
  // Lets this one's files grow to `bytes` together, where they were allowed
  // less, and removes keys that are not in use for it. kResourceExhausted where
  // the limit does not allow it, or the disk is full; kFailedPrecondition where
  // the folder holds more than the limit, which is kept.
  Status Reserve(uint64_t bytes);

  // Segments of this key that no living DiskCache adds to, and their bytes.
  Result<std::vector<std::pair<std::string, uint64_t>>> IdleSegments() const;
  // kNotFound where it is gone.
  Status RemoveSegment(const std::string& segment) const;

  // The path of this DiskCache's files, without what follows the dot.
  std::string own() const;
  // The paths of all DiskCaches' files of this key that have an index,
  // likewise.
  std::vector<std::string> Segments() const;

 private:
  struct Key {
    uint64_t used = 0;
    bool in_use = false;
    // Bytes of each segment, by its name before the dot: those that it has, or
    // those that it may come to.
    std::map<std::string, uint64_t> segments;
    std::set<std::string> written;  // of those, by a DiskCache that lives
    uint64_t bytes() const;
  };
  using Keys = std::map<std::string, Key>;  // by HASH
  static uint64_t BytesOf(const Keys& keys);

  std::string PathOf(std::string_view name) const;
  Result<std::unique_ptr<FileLock>> LockFolder() const;
  // The functions below need the folder's lock.
  Result<Keys> LookAround() const;
  void LookAtLock(const std::string& writer, Key* key) const;
  Status MarkUsed(const Keys& keys) const;
  void GiveUpLock();
  bool IsInUse(const Keys::value_type& key) const;
  uint64_t BytesInUse(const Keys& keys) const;
  // Whether none of a segment's files is there any more; its name before the
  // dot.
  bool RemoveFiles(const std::string& segment) const;
  void Remove(const std::string& hash, Key* key) const;
  // Keys that are not in use, until all take no more than `most`.
  void RemoveUnused(uint64_t most, Keys* keys) const;
  void MakeRoom(uint64_t bytes, Keys* keys) const;
  // Of a folder that was filled under a greater limit also segments of this key
  // go that nobody adds to. How many bytes have gone.
  uint64_t HoldLimit(Keys* keys) const;

  const std::string folder_;
  const std::string hash_;
  const uint64_t max_bytes_;
  const bool keeps_more_;
  FileSystem& files_;
  std::string writer_;  // HASH-WRITER
  std::unique_ptr<FileLock> lock_;
  uint64_t reserved_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_DISK_CACHE_FOLDER_H_
