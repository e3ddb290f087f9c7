#include "io/cache/disk_cache_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/parse_number.h"

namespace sluice {
namespace {

constexpr std::string_view kExamples = ".examples";
constexpr std::string_view kIndexSuffix = ".index";
constexpr std::string_view kLock = ".lock";
constexpr std::string_view kUsed = ".used";
constexpr size_t kDigits = 16;

// Whoever holds the folder's lock lists and removes files, no more.
constexpr std::chrono::milliseconds kLockPause{1};
constexpr int kLockAttempts = 5000;

// So many bytes more are reserved than are needed, so that this is seldom done.
constexpr uint64_t kMostAhead = uint64_t{64} << 20;

bool IsHex(std::string_view text) {
  return text.size() == kDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "HASH-WRITER" or "HASH" and the suffix of one of our files.
struct Name {
  std::string before;
  std::string_view suffix;  // empty: it is none of them
  std::string hash() const { return before.substr(0, kDigits); }
};

Name Parse(std::string_view name) {
  for (const std::string_view suffix :
       {kExamples, kIndexSuffix, kLock, kUsed}) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view before = name.substr(0, name.size() - suffix.size());
    const bool ours = suffix == kUsed ? IsHex(before)
                                      : before.size() == 2 * kDigits + 1 &&
                                            IsHex(before.substr(0, kDigits)) &&
                                            before[kDigits] == '-' &&
                                            IsHex(before.substr(kDigits + 1));
    if (ours) return {std::string(before), suffix};
  }
  return {};
}

// 0 where the text is none, as of a file that was being written.
uint64_t NumberOf(std::string_view text) {
  return ParseWhole<uint64_t>(text).value_or(0);
}

std::string RandomName(const std::string& hash) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", hash, random(), random());
}

}  // namespace

uint64_t DiskCacheFolder::Key::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : segments) sum += bytes;
  return sum;
}

uint64_t DiskCacheFolder::BytesOf(const Keys& keys) {
  uint64_t sum = 0;
  for (const auto& [hash, key] : keys) sum += key.bytes();
  return sum;
}

DiskCacheFolder::DiskCacheFolder(std::string folder, uint64_t key_hash,
                                 uint64_t max_bytes, FileSystem& files,
                                 bool keeps_more)
    : folder_(std::move(folder)),
      hash_(fmt::format("{:016x}", key_hash)),
      max_bytes_(max_bytes),
      keeps_more_(keeps_more),
      files_(files),
      writer_(RandomName(hash_)) {}

DiskCacheFolder::~DiskCacheFolder() {
  GiveUpLock();
}

void DiskCacheFolder::GiveUpLock() {
  // Who finds it free removes it as well.
  if (lock_ != nullptr) (void)files_.Remove(own() + std::string(kLock));
  lock_ = nullptr;
}

std::string DiskCacheFolder::PathOf(std::string_view name) const {
  return JoinPath(folder_, name);
}

std::string DiskCacheFolder::own() const {
  return PathOf(writer_);
}

std::vector<std::string> DiskCacheFolder::Segments() const {
  std::vector<std::string> segments;
  const auto names = files_.List(folder_);
  if (!names.ok()) return segments;
  for (const std::string& name : *names) {
    const Name parsed = Parse(name);
    if (parsed.suffix == kIndexSuffix && parsed.hash() == hash_) {
      segments.push_back(PathOf(parsed.before));
    }
  }
  return segments;
}

Result<std::unique_ptr<FileLock>> DiskCacheFolder::LockFolder() const {
  const std::string holder = fmt::format("process {}", getpid());
  for (int attempt = 1;; ++attempt) {
    auto lock = files_.Lock(PathOf(kLock.substr(1)), holder);
    if (lock.status().code() != Code::kFailedPrecondition) return lock;
    if (attempt == kLockAttempts) {
      return Unavailable(fmt::format("'{}' has been locked by {} for {} tries",
                                     folder_, lock.status().message(),
                                     kLockAttempts));
    }
    std::this_thread::sleep_for(kLockPause);
  }
}

void DiskCacheFolder::LookAtLock(const std::string& writer, Key* key) const {
  const std::string path = PathOf(writer + std::string(kLock));
  // Without permission nobody knows, and it must not be removed.
  const auto lock = files_.Lock(path, "");
  if (lock.ok()) {
    (void)files_.Remove(path);
    return;
  }
  key->in_use = true;
  key->written.insert(writer);
  uint64_t& bytes = key->segments[writer];
  bytes = std::max(bytes, NumberOf(lock.status().message()));
}

Result<DiskCacheFolder::Keys> DiskCacheFolder::LookAround() const {
  SLUICE_ASSIGN_OR_RETURN(const auto names, files_.List(folder_));
  Keys keys;
  // Locks come behind the files, as their names are sorted.
  for (const std::string& name : names) {
    const Name parsed = Parse(name);
    if (parsed.suffix.empty()) continue;
    Key& key = keys[parsed.hash()];
    if (parsed.suffix == kUsed) {
      const auto text = files_.ReadPrefix(PathOf(name), 100);
      key.used = text.ok() ? NumberOf(*text) : 0;
    } else if (parsed.suffix == kLock) {
      LookAtLock(parsed.before, &key);
    } else {
      const auto size = files_.Size(PathOf(name));
      key.segments[parsed.before] += size.ok() ? *size : 0;
    }
  }
  return keys;
}

Status DiskCacheFolder::MarkUsed(const Keys& keys) const {
  uint64_t last = 0;
  for (const auto& [hash, key] : keys) last = std::max(last, key.used);
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          files_.Create(PathOf(hash_ + std::string(kUsed))));
  return file->Append(fmt::format("{}", last + 1));
}

Result<uint64_t> DiskCacheFolder::Enter() {
  SLUICE_RETURN_IF_ERROR(files_.MakeDirectories(folder_));
  SLUICE_ASSIGN_OR_RETURN(const auto held, LockFolder());
  SLUICE_ASSIGN_OR_RETURN(lock_, files_.Lock(own() + std::string(kLock), "0"));
  SLUICE_ASSIGN_OR_RETURN(Keys keys, LookAround());
  const uint64_t removed = keeps_more_ ? 0 : HoldLimit(&keys);
  SLUICE_RETURN_IF_ERROR(MarkUsed(keys));
  return removed;
}

Status DiskCacheFolder::BeginSegment() {
  SLUICE_ASSIGN_OR_RETURN(const auto held, LockFolder());
  std::string writer = RandomName(hash_);
  SLUICE_ASSIGN_OR_RETURN(
      auto lock, files_.Lock(PathOf(writer + std::string(kLock)), "0"));
  GiveUpLock();
  writer_ = std::move(writer);
  lock_ = std::move(lock);
  reserved_ = 0;
  return {};
}

bool DiskCacheFolder::RemoveFiles(const std::string& segment) const {
  // The index goes first: what it points to is there.
  for (const std::string_view suffix : {kIndexSuffix, kExamples}) {
    const Status removed = files_.Remove(PathOf(segment + std::string(suffix)));
    if (!removed.ok() && removed.code() != Code::kNotFound) return false;
  }
  return true;
}

void DiskCacheFolder::Remove(const std::string& hash, Key* key) const {
  std::erase_if(key->segments, [&](const auto& segment) {
    return RemoveFiles(segment.first);
  });
  if (key->segments.empty()) (void)files_.Remove(PathOf(hash + ".used"));
}

bool DiskCacheFolder::IsInUse(const Keys::value_type& key) const {
  return key.second.in_use || key.first == hash_;
}

uint64_t DiskCacheFolder::BytesInUse(const Keys& keys) const {
  uint64_t sum = 0;
  for (const auto& key : keys) {
    if (IsInUse(key)) sum += key.second.bytes();
  }
  return sum;
}

void DiskCacheFolder::RemoveUnused(uint64_t most, Keys* keys) const {
  std::vector<Keys::value_type*> unused;
  for (auto& entry : *keys) {
    if (!IsInUse(entry)) unused.push_back(&entry);
  }
  std::stable_sort(unused.begin(), unused.end(), [](auto* a, auto* b) {
    return a->second.used < b->second.used;
  });
  for (auto* entry : unused) {
    if (BytesOf(*keys) <= most) return;
    Remove(entry->first, &entry->second);
  }
}

void DiskCacheFolder::MakeRoom(uint64_t bytes, Keys* keys) const {
  const uint64_t in_use = BytesInUse(*keys);
  if (in_use > max_bytes_ || bytes > max_bytes_ - in_use) return;
  RemoveUnused(max_bytes_ - bytes, keys);
}

uint64_t DiskCacheFolder::HoldLimit(Keys* keys) const {
  Key& own = (*keys)[hash_];
  std::vector<std::pair<uint64_t, std::string>> idle;
  uint64_t stays = BytesInUse(*keys);
  for (const auto& [name, bytes] : own.segments) {
    if (own.written.contains(name)) continue;
    idle.emplace_back(bytes, name);
    stays -= bytes;
  }
  if (stays > max_bytes_) return 0;  // it would be in vain
  const uint64_t before = BytesOf(*keys);
  RemoveUnused(max_bytes_, keys);
  std::sort(idle.rbegin(), idle.rend());  // the largest first: fewer go
  for (const auto& [bytes, name] : idle) {
    if (BytesOf(*keys) <= max_bytes_) break;
    if (RemoveFiles(name)) own.segments.erase(name);
  }
  return before - BytesOf(*keys);
}

Result<std::vector<std::pair<std::string, uint64_t>>>
DiskCacheFolder::IdleSegments() const {
  SLUICE_ASSIGN_OR_RETURN(const auto held, LockFolder());
  SLUICE_ASSIGN_OR_RETURN(Keys keys, LookAround());
  const Key& key = keys[hash_];
  std::vector<std::pair<std::string, uint64_t>> idle;
  for (const auto& [name, bytes] : key.segments) {
    if (!key.written.contains(name)) idle.emplace_back(PathOf(name), bytes);
  }
  return idle;
}

Status DiskCacheFolder::RemoveSegment(const std::string& segment) const {
  SLUICE_ASSIGN_OR_RETURN(const auto held, LockFolder());
  // As in Remove; one who was killed there may have left the examples.
  Status removed = files_.Remove(segment + std::string(kIndexSuffix));
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  return files_.Remove(segment + std::string(kExamples));
}

Status DiskCacheFolder::Reserve(uint64_t bytes) {
  if (bytes <= reserved_) return {};
  SLUICE_ASSIGN_OR_RETURN(const auto held, LockFolder());
  SLUICE_ASSIGN_OR_RETURN(Keys keys, LookAround());
  keys[hash_].segments.erase(writer_);
  const uint64_t all = BytesOf(keys) + reserved_;
  if (keeps_more_ && all > max_bytes_) {
    return FailedPrecondition(fmt::format(
        "it holds {} bytes, beyond the limit of {}", all, max_bytes_));
  }
  MakeRoom(bytes, &keys);
  const uint64_t room = max_bytes_ - std::min(max_bytes_, BytesOf(keys));
  if (bytes > room) {
    return ResourceExhausted(fmt::format(
        "the limit of {} bytes is reached, by what is in use", max_bytes_));
  }
  const uint64_t ahead = std::min(kMostAhead, max_bytes_ / 64);
  const uint64_t reserved = bytes + std::min(ahead, room - bytes);
  // It stays locked: a lock is the file's, not that of what is in it.
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          files_.Create(own() + std::string(kLock)));
  SLUICE_RETURN_IF_ERROR(file->Append(fmt::format("{}", reserved)));
  reserved_ = reserved;
  return {};
}

}  // namespace sluice
