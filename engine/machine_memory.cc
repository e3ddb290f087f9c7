#include "engine/machine_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace sluice {
namespace {

// What the two versions of control groups call their files. In version 1 no
// limit is a number near 2^63, more than any machine has.
struct GroupFiles {
  std::string folder;  // of the root group
  const char* limit;   // bytes, or "max"
  const char* used;
  const char* reclaimable;  // a line of memory.stat
};

// Its number; `fallback` where there is none ("max").
size_t NumberIn(const std::string& path, size_t fallback) {
  std::ifstream file(path);
  size_t number = 0;
  return file >> number ? number : fallback;
}

// The bytes after a name, of lines "name bytes".
size_t StatBytes(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  size_t bytes = 0;
  for (std::string key; file >> key >> bytes;) {
    if (key == name) return bytes;
  }
  return 0;
}

void Limit(const std::string& group, const GroupFiles& files,
           MachineMemory* memory) {
  const size_t limit =
      NumberIn(group + "/" + files.limit, MachineMemory::kUnknown);
  if (limit == MachineMemory::kUnknown) return;
  size_t used = NumberIn(group + "/" + files.used, 0);
  used -= std::min(used, StatBytes(group + "/memory.stat", files.reclaimable));
  memory->total = std::min(memory->total, limit);
  memory->available =
      std::min(memory->available, limit - std::min(limit, used));
}

// The process's group and those above it. A container sees its own group as the
// root of the tree, and may be told a path that is not in it.
void LimitByAll(std::string path, const GroupFiles& files,
                MachineMemory* memory) {
  if (path.find("..") != std::string::npos) path.clear();  // outside the tree
  while (path.size() > 1) {
    Limit(files.folder + path, files, memory);
    path.resize(path.rfind('/'));
  }
  Limit(files.folder, files, memory);
}

// Whether `name` is among "a,b,c".
bool Names(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

size_t ProcBytes(const std::string& path, const std::string& key,
                 size_t fallback) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) {
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
    }
  }
  return fallback;
}

MachineMemory ReadMachineMemory(const std::string& root) {
  MachineMemory memory;
  const std::string machine = root + "/proc/meminfo";
  memory.total = ProcBytes(machine, "MemTotal", MachineMemory::kUnknown);
  memory.available =
      ProcBytes(machine, "MemAvailable", MachineMemory::kUnknown);
  const GroupFiles version1 = {root + "/sys/fs/cgroup/memory",
                               "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
  const GroupFiles version2 = {root + "/sys/fs/cgroup", "memory.max",
                               "memory.current", "inactive_file"};
  // Lines "number:controllers:path"; version 2 has one, without controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) LimitByAll(path, version2, &memory);
    if (Names(controllers, "memory")) LimitByAll(path, version1, &memory);
  }
  return memory;
}

}  // namespace sluice
