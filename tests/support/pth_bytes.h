// Zip archives, pickles and .pth files made by hand (io/checkpoints/pth.h).
#ifndef SLUICE_TESTS_SUPPORT_PTH_BYTES_H_
#define SLUICE_TESTS_SUPPORT_PTH_BYTES_H_

#include <zlib.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::testing {

// Little-endian.
inline std::string Bytes(uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(number >> (8 * i));
  }
  return bytes;
}

struct StoredEntry {
  std::string name;
  std::string data;
  uint16_t method = 0;
  uint16_t flags = 0;
};

// An archive of these; with zip64 its sizes and places are those of 64 bits.
inline std::string StoredZip(const std::vector<StoredEntry>& entries,
                             bool zip64 = false,
                             const std::string& comment = "") {
  std::string archive, directory;
  for (const StoredEntry& e : entries) {
    const size_t at = archive.size();
    const uint64_t size = e.data.size();
    const auto crc = static_cast<uint32_t>(crc32_z(
        0, reinterpret_cast<const Bytef*>(e.data.data()), e.data.size()));
    const auto number = [&](uint64_t n) {
      return Bytes(zip64 ? ~uint64_t{0} : n, 4);
    };
    const std::string extra =
        Bytes(0xcafe, 2) + Bytes(1, 2) + "x" +
        (zip64 ? Bytes(1, 2) + Bytes(24, 2) + Bytes(size, 8) + Bytes(size, 8) +
                     Bytes(at, 8)
               : "");
    // Flags, method, time, date, checksum, packed and unpacked size.
    const std::string middle = Bytes(e.flags, 2) + Bytes(e.method, 2) +
                               Bytes(0, 4) + Bytes(crc, 4) + number(size) +
                               number(size) + Bytes(e.name.size(), 2);
    archive += "PK\3\4" + Bytes(45, 2) + middle + Bytes(3, 2) + e.name + "pad" +
               e.data;
    directory += "PK\1\2" + Bytes(45, 2) + Bytes(45, 2) + middle +
                 Bytes(extra.size(), 2) + Bytes(2, 2) + Bytes(0, 8) +
                 number(at) + e.name + extra + "??";
  }
  const uint64_t count = entries.size();
  const uint64_t at = archive.size();
  const uint64_t length = directory.size();
  archive += directory;
  if (zip64) {
    const size_t record = archive.size();
    archive += "PK\6\6" + Bytes(44, 8) + Bytes(45, 2) + Bytes(45, 2) +
               Bytes(0, 8) + Bytes(count, 8) + Bytes(count, 8) +
               Bytes(length, 8) + Bytes(at, 8);
    archive += "PK\6\7" + Bytes(0, 4) + Bytes(record, 8) + Bytes(1, 4);
  }
  const uint64_t ones = zip64 ? ~uint64_t{0} : 0;
  return archive + "PK\5\6" + Bytes(0, 4) + Bytes(count | ones, 2) +
         Bytes(count | ones, 2) + Bytes(length | ones, 4) +
         Bytes(at | ones, 4) + Bytes(comment.size(), 2) + comment;
}

// ---- Pickles: what pushes a value.

inline std::string PickledText(const std::string& text) {
  return "X" + Bytes(text.size(), 4) + text;
}
inline std::string PickledInt(int64_t n) {
  return "\x8a\x08" + Bytes(static_cast<uint64_t>(n), 8);
}
inline std::string PickledTuple(const std::vector<int64_t>& numbers) {
  std::string tuple = "(";
  for (const int64_t n : numbers) tuple += PickledInt(n);
  return tuple + "t";
}

// A tensor of one storage, data/<key>.
struct PickledTensor {
  std::string type = "FloatStorage";
  std::string key = "0";
  int64_t elements = 6;
  int64_t offset = 0;
  std::vector<int64_t> sizes = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  std::string function = "_rebuild_tensor_v2";

  std::string Storage() const {
    return "(" + PickledText("storage") + "ctorch\n" + type + "\n" +
           PickledText(key) + PickledText("cpu") + PickledInt(elements) + "tQ";
  }
  std::string Text() const {
    return "ctorch._utils\n" + function + "\n(" + Storage() +
           PickledInt(offset) + PickledTuple(sizes) + PickledTuple(strides) +
           "\x89}tR";
  }
};

// {"a": the value} to the end of the pickle.
inline std::string PickledDict(const std::string& value) {
  return "\x80\x02}" + PickledText("a") + value + "s.";
}

inline std::string PthFile(const std::string& pickle,
                           const std::map<std::string, std::string>& storages,
                           const std::string& byte_order = "little") {
  std::vector<StoredEntry> entries = {{"top/data.pkl", pickle},
                                      {"top/byteorder", byte_order}};
  for (const auto& [key, bytes] : storages) {
    entries.push_back({"top/data/" + key, bytes});
  }
  return StoredZip(entries);
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_PTH_BYTES_H_
