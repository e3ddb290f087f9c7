#include "apps/sluice/data/bench_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/sluice/data/faults.h"
#include "apps/sluice/data/file_tree.h"
#include "apps/sluice/data/parallel.h"
#include "apps/sluice/data/random_order.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/files/without_query.h"
#include "io/images/image.h"
#include "io/records/image_records.h"

namespace sluice::tool {
namespace {

// So large that what a system call costs does not matter.
constexpr uint64_t kPieceBytes = 1 << 20;

bool HoldsShards(const std::string& folder) {
  const ListedFolder listed = {
      folder, FileSystem::Default().List(folder).ValueOrThrow()};
  return HasImageShards(listed, ShardKind::kRecords) ||
         HasImageShards(listed, ShardKind::kTars);
}

}  // namespace

BenchPictures::BenchPictures(const std::string& path, const std::string& part,
                             int threads) {
  if (KindOf(path).ValueOrThrow() != PathKind::kFolder) {
    OpenShards({path}, threads);
  } else if (HoldsShards(path)) {
    OpenShards(PartPaths(path, part), threads);
  } else {
    ListPictures(path, threads);
  }
  if (size_ == 0) {
    throw Error(Code::kNotFound,
                fmt::format("no pictures in '{}': wanted shards of records or "
                            "tar archives, or JPEG or PNG files",
                            path));
  }
  LearnSizes(threads);
  order_ = RandomOrder(size_);
}

void BenchPictures::OpenShards(const std::vector<std::string>& paths,
                               int threads) {
  shards_ =
      PictureFiles::Open(paths, threads, TarLabels::kIgnored).ValueOrThrow();
  size_ = shards_->size();
  paths_ = paths;
}

void BenchPictures::ListPictures(const std::string& folder, int threads) {
  Faults faults;
  for (const std::string& file : ListTree(folder, threads, faults).files) {
    if (!IsImageName(file.substr(file.rfind('/') + 1))) continue;
    paths_.push_back(PathBelow(folder, file));
  }
  faults.Print(stderr);  // the others are enough
  size_ = static_cast<int64_t>(paths_.size());
}

void BenchPictures::LearnSizes(int threads) {
  sizes_.resize(paths_.size());
  const auto n = static_cast<int64_t>(paths_.size());
  ThrowIfError(ForEach(n, threads, [&](int64_t i) -> Status {
    SLUICE_ASSIGN_OR_RETURN(sizes_[i], FileSystem::Default().Size(paths_[i]));
    return {};
  }));
  for (size_t file = 0; file < sizes_.size(); ++file) {
    bytes_ += sizes_[file];
    for (uint64_t at = 0; at < sizes_[file]; at += kPieceBytes) {
      pieces_.push_back({file, at});
    }
  }
  if (pieces_.empty()) {
    throw Error(Code::kDataLoss,
                fmt::format("'{}' is empty, and so are the others",
                            WithoutQuery(paths_[0])));
  }
}

Result<EncodedPicture> BenchPictures::Read(int64_t i) const {
  const uint32_t picture = order_[i % size_];
  if (shards_ != nullptr) return shards_->Read(picture);
  const std::string& path = paths_[picture];
  SLUICE_ASSIGN_OR_RETURN(std::string bytes, FileSystem::Default().Read(path));
  return EncodedPicture{std::move(bytes), 0, path};
}

BenchPictures::PieceReader BenchPictures::MakePieceReader() const {
  struct Open {
    size_t file = 0;
    std::shared_ptr<const ReadableFile> readable;
    std::string buffer;
  };
  return [this,
          open = std::make_shared<Open>()](int64_t piece) -> Result<double> {
    const auto [file, offset] =
        pieces_[piece % static_cast<int64_t>(pieces_.size())];
    if (!open->readable || open->file != file) {
      SLUICE_ASSIGN_OR_RETURN(open->readable,
                              FileSystem::Default().OpenRead(paths_[file]));
      open->file = file;
    }
    open->buffer.resize(std::min(kPieceBytes, sizes_[file] - offset));
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            open->readable->ReadAt(offset, open->buffer.data(),
                                                   open->buffer.size()));
    return static_cast<double>(got) * static_cast<double>(size_) /
           static_cast<double>(bytes_);
  };
}

}  // namespace sluice::tool
