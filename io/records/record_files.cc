#include "io/records/record_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/thread_annotations.h"
#include "engine/threads.h"
#include "io/files/crc32c.h"
#include "io/sources/datasets.h"
#include "io/files/gzip.h"
#include "io/files/record.h"

namespace sluice {
namespace {

constexpr size_t kMostOpen = 64;

struct RecordFile {
  std::string path;
  uint64_t size = 0;              // bytes
  std::vector<uint64_t> offsets;  // of each record, and the end
};

std::string Place(const std::string& path, uint64_t offset) {
  return fmt::format("'{}', byte {}", path, offset);
}

// The heads of records, in the order of the file. Of large records it reads
// little more than these, of small ones many at once.
class Window {
 public:
  explicit Window(const ReadableFile& file) : file_(file) {}

  // The bytes at `offset`, at least a head unless the file ends; valid until
  // the next call.
  Result<std::string_view> At(uint64_t offset) {
    if (offset + kRecordHeadBytes > end_) {
      const bool near = offset < end_ + bytes_.size();
      bytes_.resize(near ? std::min(2 * bytes_.size(), kMost) : kLeast);
      SLUICE_ASSIGN_OR_RETURN(
          const size_t got, file_.ReadAt(offset, bytes_.data(), bytes_.size()));
      begin_ = offset;
      end_ = offset + got;
    }
    return std::string_view(bytes_).substr(offset - begin_, end_ - offset);
  }

 private:
  static constexpr size_t kLeast = 512;
  static constexpr size_t kMost = size_t{64} << 10;

  const ReadableFile& file_;
  std::string bytes_;
  uint64_t begin_ = 0, end_ = 0;  // in the file, of what was read
};

// An error where a file begins as compressed ones do.
Status CheckPlain(std::string_view bytes) {
  if (IsGzip(bytes)) {
    return Unimplemented(
        "the file is compressed by gzip; decompress it: gunzip < FILE > NEW");
  }
  // RFC 1950: the method is deflate, and 31 divides the first two bytes.
  if (bytes.size() >= 2 && (bytes[0] & 0x0f) == 8 &&
      (static_cast<uint8_t>(bytes[0]) * 256 + static_cast<uint8_t>(bytes[1])) %
              31 ==
          0) {
    return Unimplemented(
        "the file is compressed by zlib; decompress it: python3 -c 'import "
        "sys, zlib; sys.stdout.buffer.write(zlib.decompress("
        "sys.stdin.buffer.read()))' < FILE > NEW");
  }
  return {};
}

// The length of the record at `offset`, all of which must be in the file.
Result<uint64_t> LengthAt(Window& window, uint64_t offset, uint64_t size) {
  SLUICE_ASSIGN_OR_RETURN(const std::string_view bytes, window.At(offset));
  auto length = RecordLength(bytes);
  if (!length.ok()) {
    // A whole record may begin like that, too.
    if (offset == 0) SLUICE_RETURN_IF_ERROR(CheckPlain(bytes));
    return length;
  }
  const uint64_t rest = size - offset;
  if (rest < kRecordFrameBytes || *length > rest - kRecordFrameBytes) {
    return DataLoss("the file ends within the record");
  }
  return length;
}

Status Walk(const ReadableFile& from, RecordFile* file) {
  Window window(from);
  uint64_t at = 0;
  while (at < file->size) {
    const auto length = LengthAt(window, at, file->size);
    if (!length.ok()) {
      return length.status().WithContext(Place(file->path, at));
    }
    file->offsets.push_back(at);
    at += *length + kRecordFrameBytes;
  }
  file->offsets.push_back(at);
  return {};
}

// Takes a number and the mark behind it away from the text.
std::optional<uint64_t> TakeNumber(std::string_view* text, char mark) {
  uint64_t number = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != mark) {
    return std::nullopt;
  }
  text->remove_prefix(parsed.ptr + 1 - text->data());
  return number;
}

// The offsets of the records and the end; nothing where the text of an index
// does not fit a file of that size.
std::optional<std::vector<uint64_t>> ParseIndex(std::string_view text,
                                                uint64_t size) {
  std::vector<uint64_t> offsets = {0};
  while (!text.empty()) {
    const auto offset = TakeNumber(&text, ' ');
    if (!offset || *offset != offsets.back()) return std::nullopt;
    const auto bytes = TakeNumber(&text, '\n');
    if (!bytes || *bytes < kRecordFrameBytes || *bytes > size - *offset) {
      return std::nullopt;
    }
    offsets.push_back(*offset + *bytes);
  }
  if (offsets.back() != size) return std::nullopt;
  return offsets;
}

// Whether the offsets are those of the file's records, as far as one look says.
bool Fits(const std::vector<uint64_t>& offsets, const ReadableFile& from) {
  if (offsets.size() == 1) return true;
  // One of the same records in another order has the same size.
  Window window(from);
  const uint64_t last = offsets.end()[-2];
  const auto length = LengthAt(window, last, from.size());
  return length.ok() && last + *length + kRecordFrameBytes == from.size();
}

Status UseIndex(const ReadableFile& from, FileSystem& files,
                const std::string& index, RecordFile* file) {
  // One byte more than a fitting one can have.
  constexpr uint64_t kLongestLine = 2 * 20 + 2;
  const uint64_t most = file->size / kRecordFrameBytes * kLongestLine + 1;
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          files.ReadPrefix(index, most));
  auto offsets = ParseIndex(text, file->size);
  if (!offsets || !Fits(*offsets, from)) {
    return DataLoss(fmt::format(
        "'{}' does not fit '{}': one of them has changed; if no records are "
        "missing there, remove the index",
        index, file->path));
  }
  file->offsets = *std::move(offsets);
  return {};
}

Status Learn(FileSystem& files, RecordFile* file) {
  SLUICE_ASSIGN_OR_RETURN(const auto opened, files.OpenRead(file->path));
  file->size = opened->size();
  const std::string index = file->path + ".idx";
  if (files.Exists(index)) return UseIndex(*opened, files, index, file);
  return Walk(*opened, file);
}

}  // namespace

struct RecordFiles::State {
  struct Record {
    size_t file;
    uint64_t offset;
    uint64_t bytes;  // of its frame
  };
  using File = std::shared_ptr<const ReadableFile>;

  FileSystem* file_system;
  std::vector<RecordFile> files;
  std::vector<int64_t> first;  // record of each file, and how many there are

  Mutex mutex;
  // By their place in `files`; the one used last comes first.
  std::vector<std::pair<size_t, File>> open GUARDED_BY(mutex);

  Record Find(int64_t record) const {
    SLUICE_CHECK(record >= 0 && record < first.back());
    // The last file that begins there: those before it are empty.
    const auto after = std::upper_bound(first.begin(), first.end(), record);
    const size_t file = after - first.begin() - 1;
    const auto& offsets = files[file].offsets;
    const size_t i = record - first[file];
    return {file, offsets[i], offsets[i + 1] - offsets[i]};
  }

  File FindOpen(size_t file) {
    MutexLock lock(mutex);
    const auto found = std::find_if(open.begin(), open.end(), [&](auto& entry) {
      return entry.first == file;
    });
    if (found == open.end()) return nullptr;
    std::rotate(open.begin(), found, found + 1);
    return open.front().second;
  }

  Result<File> Open(size_t file) {
    if (File found = FindOpen(file)) return found;
    // Without the lock, since it may take long: two threads may open the same
    // file, which costs no more than that.
    const auto& [path, size, offsets] = files[file];
    // It was there before: not one bad record, which may be passed over.
    auto reopened = file_system->OpenRead(path);
    if (!reopened.ok()) return Unavailable(reopened.status().message());
    auto opened = *std::move(reopened);
    if (opened->size() != size) {
      return Unavailable(
          fmt::format("'{}' has changed: it has {} bytes, before it had {}",
                      path, opened->size(), size));
    }
    File shared = std::move(opened);
    MutexLock lock(mutex);
    open.emplace(open.begin(), file, shared);
    if (open.size() > kMostOpen) open.pop_back();
    return shared;
  }

  // Of records of the file, from its first to its last, what is behind their
  // payloads.
  Status AddChecksums(size_t file, std::string* text) {
    constexpr size_t kMost = 16, kBytes = 4;
    const std::vector<uint64_t>& offsets = files[file].offsets;
    const size_t records = offsets.size() - 1;
    if (records == 0) return {};
    SLUICE_ASSIGN_OR_RETURN(const File opened, Open(file));
    const size_t looked_at = std::min(kMost, records);
    for (size_t i = 0; i < looked_at; ++i) {
      const size_t after =
          looked_at == 1 ? 1 : 1 + i * (records - 1) / (looked_at - 1);
      std::array<char, kBytes> checksum{};
      SLUICE_RETURN_IF_ERROR(opened
                                 ->ReadAt(offsets[after] - kBytes,
                                          checksum.data(), checksum.size())
                                 .status());
      text->append(checksum.data(), checksum.size());
    }
    return {};
  }
};

RecordFiles::RecordFiles(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
RecordFiles::~RecordFiles() = default;

Result<std::shared_ptr<const RecordFiles>> RecordFiles::Open(
    std::vector<std::string> paths, int threads, FileSystem& files) {
  auto state = std::make_unique<State>();
  state->file_system = &files;
  const auto count = static_cast<int64_t>(paths.size());
  state->files.resize(count);
  std::vector<Status> errors(count);
  ThreadPool pool(static_cast<int>(
      std::clamp<int64_t>(threads, 1, std::max<int64_t>(count, 1))));
  pool.ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      state->files[i].path = std::move(paths[i]);
      errors[i] = Learn(files, &state->files[i]);
    }
  });
  for (const Status& error : errors) SLUICE_RETURN_IF_ERROR(error);
  state->first = {0};
  for (const RecordFile& file : state->files) {
    const auto records = static_cast<int64_t>(file.offsets.size()) - 1;
    state->first.push_back(state->first.back() + records);
  }
  return std::shared_ptr<const RecordFiles>(new RecordFiles(std::move(state)));
}

int64_t RecordFiles::size() const {
  return state_->first.back();
}

Result<std::string> RecordFiles::Read(int64_t record) const {
  const State::Record at = state_->Find(record);
  SLUICE_ASSIGN_OR_RETURN(const auto file, state_->Open(at.file));
  std::string frame(at.bytes, '\0');
  SLUICE_ASSIGN_OR_RETURN(const size_t got,
                          file->ReadAt(at.offset, frame.data(), frame.size()));
  frame.resize(got);
  const auto payload = RecordPayload(frame);
  if (!payload.ok()) return payload.status().WithContext(PlaceOf(record));
  const size_t length = payload->size();
  if (length + kRecordFrameBytes != at.bytes) {
    return DataLoss(fmt::format(
        "{}: the file has changed, or its .idx is wrong: the record has {} "
        "bytes, it should have {}",
        PlaceOf(record), length, at.bytes - kRecordFrameBytes));
  }
  frame.erase(0, kRecordHeadBytes);
  frame.resize(length);
  return frame;
}

std::string RecordFiles::PlaceOf(int64_t record) const {
  const State::Record at = state_->Find(record);
  return Place(state_->files[at.file].path, at.offset);
}

Result<std::string> RecordFiles::Identity() const {
  std::string text;
  for (size_t i = 0; i < state_->files.size(); ++i) {
    const RecordFile& file = state_->files[i];
    const std::string_view offsets(
        reinterpret_cast<const char*>(file.offsets.data()),
        file.offsets.size() * sizeof(uint64_t));
    text += fmt::format("{}\n{}\n{:08x}\n",
                        file.path.substr(file.path.rfind('/') + 1), file.size,
                        Crc32c(offsets));
    SLUICE_RETURN_IF_ERROR(state_->AddChecksums(i, &text));
  }
  return fmt::format("records-{:08x}", Crc32c(text));
}

std::string RecordIndexText(const std::vector<uint64_t>& offsets,
                            uint64_t file_size) {
  std::string text;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const uint64_t end = i + 1 < offsets.size() ? offsets[i + 1] : file_size;
    text += fmt::format("{} {}\n", offsets[i], end - offsets[i]);
  }
  return text;
}

namespace datasets {

Dataset RecordNumbers(const RecordFiles& records, const std::string& meaning) {
  Tensor numbers(DType::kInt64, {records.size()});
  std::iota(numbers.values<int64_t>().begin(), numbers.values<int64_t>().end(),
            0);
  return FromTensors({{"record", std::move(numbers)}},
                     records.Identity().ValueOrThrow() + meaning);
}

}  // namespace datasets
}  // namespace sluice
