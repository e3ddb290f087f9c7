// Examples kept on the local disk, for the processes of this host and those of
// later. Internal to io.
#ifndef SLUICE_IO_CACHE_DISK_CACHE_H_
#define SLUICE_IO_CACHE_DISK_CACHE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "io/cache/example_cache.h"
#include "io/files/file.h"

namespace sluice {

// Keeps examples in a folder that any number of processes may use at the same
// time and be killed in. `key` is all that decides the examples: under another
// one none of them are found. The examples of all keys, and where they are,
// take at most max_bytes of the folder; where that is not enough, keys that no
// process has open are removed, those first whose last opening is longest ago.
// In a folder that holds more already, as under a greater limit, that is done
// when it is opened, and files of this key go as well which no other living
// cache adds to; who reads these finds nothing there any more. With keeps_more
// all that stays, and nothing is added.
//
// What turned out not to be wanted (ExampleCache::Find), or is there twice, is
// room as well: where there is no other, files of this key that no other living
// cache adds to are written anew without it, if it is a quarter of them. Adding
// waits for that, finding does not.
//
// Nothing is synced: after a loss of power some examples may be gone, which
// checksums tell. What is damaged counts as not there. Once an example cannot
// be kept (the limit, a full disk, a folder that cannot be written), none is
// any more by this cache, which still finds those that are there; but where it
// was the limit, others are kept once there is room again.
//
// Keeps some 60 bytes an example in memory, and at most 64 files open, besides
// those that it writes.
std::unique_ptr<ExampleCache> DiskCache(
    const std::string& folder, std::string_view key, uint64_t max_bytes,
    FileSystem& files = FileSystem::Default(), bool keeps_more = false);

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_DISK_CACHE_H_
