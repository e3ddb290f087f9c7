#include "io/records/record_writer.h"

#include <optional>
#include <utility>
#include <vector>

#include "io/files/gzip.h"
#include "io/files/record.h"
#include "io/records/record_files.h"

namespace sluice {

struct RecordWriter::State {
  static constexpr size_t kBufferBytes = 4 << 20;

  FileSystem& files;
  const std::string path, temporary;
  std::unique_ptr<WritableFile> file;
  std::optional<Deflater> deflater;
  bool renamed = false;
  std::vector<uint64_t> offsets = {};  // of records
  uint64_t size = 0;                   // of records so far, not compressed
  std::string buffer = {};             // as it will be in the file

  Status Flush() {
    Status status = file->Append(buffer);
    buffer.clear();
    return status;
  }

  Status Finish() {
    if (deflater) deflater->Finish(&buffer);
    SLUICE_RETURN_IF_ERROR(Flush());
    SLUICE_RETURN_IF_ERROR(file->Sync());
    SLUICE_RETURN_IF_ERROR(file->Close());
    file = nullptr;
    // Before the file, so that an old one is never beside a new one.
    const std::string index = path + ".idx";
    SLUICE_ASSIGN_OR_RETURN(const bool indexed, files.Exists(index));
    if (indexed) SLUICE_RETURN_IF_ERROR(files.Remove(index));
    SLUICE_RETURN_IF_ERROR(files.Rename(temporary, path));
    renamed = true;
    SLUICE_RETURN_IF_ERROR(files.SyncDirectory(ParentDirectory(path)));
    if (deflater) return {};
    return files.WriteAtomically(index, RecordIndexText(offsets, size));
  }
};

Result<std::unique_ptr<RecordWriter>> RecordWriter::Create(
    const std::string& path, Compression compression, FileSystem& files) {
  const std::string temporary = TemporaryName(path);
  SLUICE_ASSIGN_OR_RETURN(auto file, files.Create(temporary));
  std::unique_ptr<State> state(
      new State{files, path, temporary, std::move(file), std::nullopt});
  if (compression != Compression::kNone) state->deflater.emplace(compression);
  return std::unique_ptr<RecordWriter>(new RecordWriter(std::move(state)));
}

RecordWriter::RecordWriter(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

RecordWriter::~RecordWriter() {
  FileSystem& files = state_->files;
  state_->file = nullptr;
  if (!state_->renamed) (void)files.Remove(state_->temporary);
}

Status RecordWriter::Write(std::string_view payload) {
  State& state = *state_;
  std::string record;
  std::string& to = state.deflater ? record : state.buffer;
  const size_t before = to.size();
  AppendRecord(payload, &to);
  state.offsets.push_back(state.size);
  state.size += to.size() - before;
  if (state.deflater) state.deflater->Deflate(record, &state.buffer);
  return state.buffer.size() < State::kBufferBytes ? Status() : state.Flush();
}

Status RecordWriter::Close() {
  return state_->Finish();
}

int64_t RecordWriter::records() const {
  return static_cast<int64_t>(state_->offsets.size());
}

}  // namespace sluice
