#include "io/records/record_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/catch_errors.h"
#include "io/files/crc32c.h"
#include "io/files/gzip.h"
#include "io/files/open_files.h"
#include "io/files/record.h"
#include "io/files/without_query.h"
#include "io/sources/datasets.h"

namespace sluice {
namespace {

struct RecordFile {
  std::string path;
  std::string version;            // when it was opened
  uint64_t size = 0;              // bytes
  std::vector<uint64_t> offsets;  // of each record, and the end
};

// An error where a file begins as compressed ones do.
Status CheckPlain(std::string_view bytes) {
  const Compression compression = CompressionOf(bytes);
  if (compression == Compression::kNone) return {};
  const bool gzip = compression == Compression::kGzip;
  return Unimplemented(fmt::format(
      "the file is compressed by {}: its records can only be read in order "
      "(datasets::Records); for any other order decompress it: {} < FILE > NEW",
      gzip ? "gzip" : "zlib",
      gzip ? "gunzip"
           : "python3 -c 'import sys, zlib; sys.stdout.buffer.write("
             "zlib.decompress(sys.stdin.buffer.read()))'"));
}

// The length of the record at `offset`, all of which must be in the file.
Result<uint64_t> LengthAt(ForwardWindow& window, uint64_t offset,
                          uint64_t size) {
  SLUICE_ASSIGN_OR_RETURN(const std::string_view bytes,
                          window.At(offset, kRecordHeadBytes));
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
  ForwardWindow window(from);
  uint64_t at = 0;
  while (at < file->size) {
    const auto length = LengthAt(window, at, file->size);
    if (!length.ok()) {
      return length.status().WithContext(PlaceInFile(file->path, at));
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
  ForwardWindow window(from);
  const uint64_t last = offsets.end()[-2];
  const auto length = LengthAt(window, last, from.size());
  return length.ok() && last + *length + kRecordFrameBytes == from.size();
}

Status UseIndex(const ReadableFile& from, const std::string& index,
                std::string_view text, RecordFile* file) {
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

Status Learn(FileSystem& files, size_t number, RecordFile* file,
             OpenFiles* open) {
  SLUICE_ASSIGN_OR_RETURN(const auto opened, files.OpenRead(file->path));
  open->Saw(number, *opened);
  file->version = opened->version();
  file->size = opened->size();
  // Behind a query it would be a part of that, and answered by anything, such
  // as the file again; and a signature is of one file.
  if (WithoutQuery(file->path) != file->path) return Walk(*opened, file);
  const std::string index = file->path + ".idx";
  // One byte more than a fitting one can have.
  constexpr uint64_t kLongestLine = 2 * 20 + 2;
  const uint64_t most = file->size / kRecordFrameBytes * kLongestLine + 1;
  const auto text = files.ReadPrefix(index, most);
  // One that may not be read might tell that records are missing.
  if (text.status().code() == Code::kNotFound) return Walk(*opened, file);
  SLUICE_RETURN_IF_ERROR(text.status());
  return UseIndex(*opened, index, *text, file);
}

}  // namespace

struct RecordFiles::State {
  struct Record {
    size_t file;
    uint64_t offset;
    uint64_t bytes;  // of its frame
  };

  explicit State(FileSystem& file_system) : open(file_system) {}

  int threads = 1;
  std::vector<RecordFile> files;
  ItemNumbers numbers;
  OpenFiles open;

  Record Find(int64_t record) const {
    const auto [file, i] = numbers.Find(record);
    const auto& offsets = files[file].offsets;
    return {file, offsets[i], offsets[i + 1] - offsets[i]};
  }
  Result<OpenFiles::File> Open(size_t file) {
    return open.Get(file, files[file].path, files[file].size);
  }

  // Of records of the file, from its first to its last, what is behind their
  // payloads.
  Status AddChecksums(size_t file, std::string* text) {
    constexpr size_t kMost = 16, kBytes = 4;
    const std::vector<uint64_t>& offsets = files[file].offsets;
    const size_t records = offsets.size() - 1;
    if (records == 0) return {};
    SLUICE_ASSIGN_OR_RETURN(const auto opened, Open(file));
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
  auto state = std::make_unique<State>(files);
  state->threads = threads;
  state->files.resize(paths.size());
  SLUICE_RETURN_IF_ERROR(ForEachFile(paths.size(), threads, [&](size_t i) {
    state->files[i].path = std::move(paths[i]);
    return Learn(files, i, &state->files[i], &state->open);
  }));
  for (const RecordFile& file : state->files) {
    state->numbers.AddFile(file.offsets.size() - 1);
  }
  return std::shared_ptr<const RecordFiles>(new RecordFiles(std::move(state)));
}

int64_t RecordFiles::size() const {
  return state_->numbers.size();
}

Result<std::string> RecordFiles::Read(int64_t record) const {
  const State::Record at = state_->Find(record);
  SLUICE_ASSIGN_OR_RETURN(const auto file, state_->Open(at.file));
  std::string frame;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] { frame.resize(at.bytes); }));
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

int64_t RecordFiles::CountOf(size_t file) const {
  return static_cast<int64_t>(state_->files[file].offsets.size() - 1);
}

const std::string& RecordFiles::VersionOf(size_t file) const {
  return state_->files[file].version;
}

std::string RecordFiles::PlaceOf(int64_t record) const {
  const State::Record at = state_->Find(record);
  return PlaceInFile(state_->files[at.file].path, at.offset);
}

Result<std::string> RecordFiles::Identity() const {
  const auto describe = [&](size_t i, std::string* text) -> Status {
    const RecordFile& file = state_->files[i];
    const std::string_view offsets(
        reinterpret_cast<const char*>(file.offsets.data()),
        file.offsets.size() * sizeof(uint64_t));
    *text = fmt::format("{}\n{}\n{:08x}\n", FileNameOf(file.path), file.size,
                        Crc32c(offsets));
    return state_->AddChecksums(i, text);
  };
  SLUICE_ASSIGN_OR_RETURN(
      const std::string text,
      TextOfFiles(state_->files.size(), state_->threads, describe));
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

Dataset RecordNumbers(int64_t count, const std::string& identity) {
  Tensor numbers(DType::kInt64, {count});
  std::iota(numbers.values<int64_t>().begin(), numbers.values<int64_t>().end(),
            0);
  return FromTensors({{"record", std::move(numbers)}}, identity);
}

Dataset RecordNumbers(const RecordFiles& records, const std::string& meaning) {
  return RecordNumbers(records.size(),
                       records.Identity().ValueOrThrow() + meaning);
}

}  // namespace datasets
}  // namespace sluice
