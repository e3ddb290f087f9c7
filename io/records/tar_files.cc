#include "io/records/tar_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/catch_errors.h"
#include "engine/parse_number.h"
#include "engine/text/json_object.h"
#include "io/files/crc32c.h"
#include "io/files/open_files.h"
#include "io/files/without_query.h"
#include "io/records/tar.h"
#include "io/records/tar_samples.h"

namespace sluice {
namespace {

Result<std::string> ReadAll(const ReadableFile& file, const TarExtent& extent) {
  std::string bytes;
  SLUICE_RETURN_IF_ERROR(CatchErrors([&] { bytes.resize(extent.size); }));
  SLUICE_ASSIGN_OR_RETURN(
      const size_t got, file.ReadAt(extent.offset, bytes.data(), bytes.size()));
  if (got < bytes.size()) return DataLoss("the file has become shorter");
  return bytes;
}

Result<int64_t> TextLabel(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string_view digits = text;
  digits.remove_prefix(
      std::min(digits.find_first_not_of(kBlanks), digits.size()));
  digits = digits.substr(0, digits.find_last_not_of(kBlanks) + 1);
  if (const auto label = ParseWhole<int64_t>(digits)) return *label;
  constexpr size_t kShown = 32;
  return DataLoss(fmt::format("cls: wanted a whole number, got '{}'",
                              Escaped(digits.substr(0, kShown))));
}

Result<int64_t> JsonLabel(std::string_view text) {
  const auto object = JsonObject::Parse(text);
  auto label = object.ok() ? object->Int("label") : object.status();
  if (label.ok()) return label;
  return DataLoss("json: " + Escaped(label.status().message()));
}

}  // namespace

struct TarFiles::State {
  explicit State(FileSystem& files) : open(files) {}

  const TarSample& Find(int64_t sample, const TarShard** shard) const {
    const auto [file, item] = numbers.Find(sample);
    *shard = &shards[file];
    return shards[file].samples[item];
  }
  Result<OpenFiles::File> OpenShard(const TarShard& shard) {
    return open.Get(&shard - shards.data(), shard.path, shard.size);
  }
  // For a sample that is not bad.
  Result<OpenFiles::File> OpenFor(const TarSample& sample,
                                  const TarShard& shard) {
    const auto fault = shard.faults.find(&sample - shard.samples.data());
    if (fault == shard.faults.end()) return OpenShard(shard);
    return DataLoss(fault->second)
        .WithContext(
            PlaceOfTarSample(shard.path, TarKeyOf(shard.NameOf(sample))));
  }
  static Result<int64_t> ReadLabel(const ReadableFile& file,
                                   const TarSample& sample) {
    if (sample.label_kind == TarLabelKind::kNone) return int64_t{0};
    SLUICE_ASSIGN_OR_RETURN(const std::string text,
                            ReadAll(file, sample.label));
    return sample.label_kind == TarLabelKind::kText ? TextLabel(text)
                                                    : JsonLabel(text);
  }
  static Result<TarPicture> ReadPicture(const ReadableFile& file,
                                        const TarSample& sample) {
    TarPicture picture;
    const auto& [offset, size] = sample.picture;
    SLUICE_ASSIGN_OR_RETURN(
        picture.encoded, ReadAll(file, {offset - kTarBlock, size + kTarBlock}));
    const auto header = std::string_view(picture.encoded).substr(0, kTarBlock);
    if (Crc32c(header) != sample.header) {
      return DataLoss("the file has changed: the picture's header is another");
    }
    picture.encoded.erase(0, kTarBlock);
    SLUICE_ASSIGN_OR_RETURN(picture.label, ReadLabel(file, sample));
    return picture;
  }
  // Of samples from the first to the last.
  Status AddContents(const TarShard& shard, std::string* text);

  int threads = 1;
  std::vector<TarShard> shards;
  ItemNumbers numbers;
  OpenFiles open;
};

Status TarFiles::State::AddContents(const TarShard& shard, std::string* text) {
  constexpr size_t kMost = 16;
  constexpr uint64_t kBytes = 64;
  const size_t count = shard.samples.size(), looked_at = std::min(kMost, count);
  if (count == 0) return {};
  SLUICE_ASSIGN_OR_RETURN(const auto file, OpenShard(shard));
  for (size_t i = 0; i < looked_at; ++i) {
    const size_t at = looked_at == 1 ? 0 : i * (count - 1) / (looked_at - 1);
    const auto& [picture, label, header, name_size, name_begin, kind] =
        shard.samples[at];
    const uint64_t size = std::min(picture.size, kBytes);
    const TarExtent end = {picture.offset + picture.size - size, size};
    for (const TarExtent& extent : {end, label}) {
      SLUICE_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(*file, extent));
      text->append(bytes);
    }
  }
  return {};
}

TarFiles::TarFiles(std::unique_ptr<State> state) : state_(std::move(state)) {}
TarFiles::~TarFiles() = default;

Result<std::shared_ptr<const TarFiles>> TarFiles::Open(
    const std::vector<std::string>& paths, TarLabels labels, int threads,
    FileSystem& files) {
  auto state = std::make_unique<State>(files);
  state->threads = threads;
  for (const std::string& path : paths) {
    state->shards.push_back({.path = path});
  }
  SLUICE_RETURN_IF_ERROR(ForEachFile(paths.size(), threads, [&](size_t i) {
    return LearnTarSamples(files, labels, i, &state->open, &state->shards[i]);
  }));
  for (const TarShard& shard : state->shards) {
    state->numbers.AddFile(shard.samples.size());
  }
  return std::shared_ptr<const TarFiles>(new TarFiles(std::move(state)));
}

int64_t TarFiles::size() const {
  return state_->numbers.size();
}

Result<TarPicture> TarFiles::Read(int64_t sample) const {
  const TarShard* shard = nullptr;
  const TarSample& found = state_->Find(sample, &shard);
  SLUICE_ASSIGN_OR_RETURN(const auto file, state_->OpenFor(found, *shard));
  auto picture = State::ReadPicture(*file, found);
  if (!picture.ok()) return picture.status().WithContext(PlaceOf(sample));
  picture->name = shard->NameOf(found);
  return picture;
}

Result<int64_t> TarFiles::Label(int64_t sample) const {
  const TarShard* shard = nullptr;
  const TarSample& found = state_->Find(sample, &shard);
  SLUICE_ASSIGN_OR_RETURN(const auto file, state_->OpenFor(found, *shard));
  auto label = State::ReadLabel(*file, found);
  return label.ok() ? label : label.status().WithContext(PlaceOf(sample));
}

int64_t TarFiles::CountOf(size_t file) const {
  return static_cast<int64_t>(state_->shards[file].samples.size());
}

const std::string& TarFiles::VersionOf(size_t file) const {
  return state_->shards[file].version;
}

std::string TarFiles::PlaceOf(int64_t sample) const {
  const TarShard* shard = nullptr;
  const TarSample& found = state_->Find(sample, &shard);
  return PlaceOfTarSample(shard->path, TarKeyOf(shard->NameOf(found)));
}

Result<std::string> TarFiles::Identity() const {
  const auto describe = [&](size_t i, std::string* text) -> Status {
    const TarShard& shard = state_->shards[i];
    std::string extents;
    for (const TarSample& sample : shard.samples) {
      for (const auto& [offset, size] : {sample.picture, sample.label}) {
        extents += fmt::format("{} {}\n", offset, size);
      }
    }
    *text = fmt::format("{}\n{}\n{:08x}\n", FileNameOf(shard.path), shard.size,
                        Crc32c(extents));
    return state_->AddContents(shard, text);
  };
  SLUICE_ASSIGN_OR_RETURN(
      const std::string text,
      TextOfFiles(state_->shards.size(), state_->threads, describe));
  return fmt::format("tars-{:08x}", Crc32c(text));
}

}  // namespace sluice
