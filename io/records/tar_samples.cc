#include "io/records/tar_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "io/files/open_files.h"
#include "io/files/without_query.h"
#include "io/records/tar.h"

namespace sluice {
namespace {

// More than any picture or label has, so that none is allocated.
constexpr uint64_t kMostPicture = uint64_t{1} << 30;
constexpr uint64_t kMostLabel = 1 << 20;

struct SplitName {
  std::string_view key;
  std::string extension;
};

// Nothing for a name that is of no sample.
std::optional<SplitName> Split(std::string_view name) {
  const size_t base = name.rfind('/') + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  SplitName split = {name.substr(0, dot), std::string(name.substr(dot + 1))};
  for (char& c : split.extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return split;
}

bool IsPicture(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png";
}

// Makes the samples of an archive of its members.
class Samples {
 public:
  Samples(TarLabels labels, TarShard* shard) : labels_(labels), shard_(shard) {}

  // Only what makes the whole archive unusable is an error.
  Status Take(const TarMember& member) {
    const auto split = Split(member.name);
    if (!split) return {};
    if (!key_ || split->key != *key_) {
      Finish();
      key_ = split->key;
    }
    const std::string& extension = split->extension;
    const bool picture = IsPicture(extension);
    if (!picture && extension != "cls" && extension != "json") return {};
    if (member.link && (picture || labels_ == TarLabels::kRead)) {
      return Unimplemented(
                 fmt::format("'{}' is a link; pack with tar --hard-dereference "
                             "--dereference",
                             Escaped(member.name)))
          .WithContext(fmt::format("'{}'", WithoutQuery(shard_->path)));
    }
    if (picture) {
      TakePicture(member);
    } else {
      TakeLabel(extension, member);
    }
    return {};
  }

  // Behind the last one.
  void Finish() {
    if (!key_) return;
    if (sample_.label_kind == TarLabelKind::kJson && !has_picture_) {
      without_picture_.push_back(*std::move(key_));
    } else if (has_picture_ || sample_.label_kind != TarLabelKind::kNone) {
      Add();
    }
    key_.reset();
    sample_ = {};
    has_picture_ = false;
    name_.clear();
    fault_.clear();
  }

  // The key of a sample whose files are not all together.
  std::optional<std::string> Scattered() const;

 private:
  void TakePicture(const TarMember& member) {
    if (has_picture_) {
      SetFault(fmt::format("two pictures: '{}' and '{}'", Escaped(name_),
                           Escaped(member.name)));
      return;
    }
    has_picture_ = true;
    sample_.picture = {member.offset, member.size};
    sample_.header = member.header;
    name_ = member.name;
  }

  void TakeLabel(const std::string& extension, const TarMember& member) {
    const TarLabelKind kind =
        extension == "cls" ? TarLabelKind::kText : TarLabelKind::kJson;
    if (sample_.label_kind == kind && labels_ == TarLabels::kRead) {
      SetFault(fmt::format("two files '{}'", extension));
    }
    if (sample_.label_kind == TarLabelKind::kText) return;
    sample_.label = {member.offset, member.size};
    sample_.label_kind = kind;
    if (!has_picture_) name_ = member.name;
  }

  void SetFault(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
  }

  void Add() {
    Check();
    const bool bad = !fault_.empty();
    if (bad) {
      shard_->faults.emplace(shard_->samples.size(), std::move(fault_));
      sample_.picture = {};
    }
    if (bad || labels_ == TarLabels::kIgnored) {
      sample_.label = {};
      sample_.label_kind = TarLabelKind::kNone;
    }
    sample_.name_begin = shard_->names.size();
    sample_.name_size = static_cast<uint32_t>(name_.size());
    shard_->names += name_;
    shard_->samples.push_back(sample_);
  }

  void Check() {
    if (!has_picture_) {
      SetFault("no picture: wanted a file jpg, jpeg or png");
    }
    if (sample_.picture.size > kMostPicture) {
      SetFault(fmt::format("the picture has {} bytes, wanted at most {}",
                           sample_.picture.size, kMostPicture));
    }
    if (labels_ == TarLabels::kIgnored) return;
    if (sample_.label_kind == TarLabelKind::kNone) {
      SetFault("no label: wanted a file cls or json");
    }
    if (sample_.label.size > kMostLabel) {
      SetFault(fmt::format("the label has {} bytes, wanted at most {}",
                           sample_.label.size, kMostLabel));
    }
  }

  TarLabels labels_;
  TarShard* shard_;
  std::optional<std::string> key_;
  // Of that key, so far.
  TarSample sample_;
  bool has_picture_ = false;
  std::string name_, fault_;

  // Keys of files json alone, which are no samples.
  std::vector<std::string> without_picture_;
};

std::optional<std::string> Samples::Scattered() const {
  std::vector<std::string_view> keys;
  for (const TarSample& sample : shard_->samples) {
    keys.push_back(TarKeyOf(shard_->NameOf(sample)));
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) return std::string(*twice);
  for (const std::string& key : without_picture_) {
    if (std::binary_search(keys.begin(), keys.end(), key)) return key;
  }
  return std::nullopt;
}

}  // namespace

std::string_view TarKeyOf(std::string_view picture) {
  return picture.substr(0, picture.find('.', picture.rfind('/') + 1));
}

std::string PlaceOfTarSample(const std::string& path, std::string_view key) {
  return fmt::format("'{}', sample '{}'", WithoutQuery(path), Escaped(key));
}

Status LearnTarSamples(FileSystem& files, TarLabels labels, size_t number,
                       OpenFiles* open, TarShard* shard) {
  SLUICE_ASSIGN_OR_RETURN(const auto opened, files.OpenRead(shard->path));
  open->Saw(number, *opened);
  shard->size = opened->size();
  shard->version = opened->version();
  TarReader reader(shard->path, *opened);
  Samples samples(labels, shard);
  TarMember member;
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader.Next(&member));
    if (!more) break;
    SLUICE_RETURN_IF_ERROR(samples.Take(member));
  }
  samples.Finish();
  shard->samples.shrink_to_fit();
  shard->names.shrink_to_fit();
  if (const auto key = samples.Scattered()) {
    return DataLoss(
               "its files are not all together: other samples' are between")
        .WithContext(PlaceOfTarSample(shard->path, *key));
  }
  return {};
}

}  // namespace sluice
