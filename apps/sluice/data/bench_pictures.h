// The pictures that `sluice data bench` reads: those of shards or files of
// their own.
#ifndef SLUICE_APPS_SLUICE_DATA_BENCH_PICTURES_H_
#define SLUICE_APPS_SLUICE_DATA_BENCH_PICTURES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/sluice/data/records.h"
#include "engine/status.h"

namespace sluice::tool {

// Immutable; thread-safe.
class BenchPictures {
 public:
  // A file of records, an archive, a folder of shards, of which `part`, or a
  // folder with pictures in it or in its folders. Throws Error, kNotFound where
  // there are no pictures.
  BenchPictures(const std::string& path, const std::string& part, int threads);

  // Whether the pictures are in shards: there a picture is found by what is
  // around it, its checksums among that.
  bool in_shards() const { return shards_ != nullptr; }
  int64_t size() const { return size_; }
  uint64_t bytes() const { return bytes_; }  // of all files

  // The i-th picture of an endless series that has each once, in an order as
  // random as training's, before any comes again. A file of its own it reads
  // whole. Errors name the picture.
  Result<EncodedPicture> Read(int64_t i) const;

  // Reads one piece of the files' bytes after the other, in order and then
  // again; returns how many pictures' bytes that are on average. Each thread
  // calls a reader of its own.
  using PieceReader = std::function<Result<double>(int64_t piece)>;
  PieceReader MakePieceReader() const;

 private:
  struct Piece {
    size_t file;
    uint64_t offset;
  };

  void OpenShards(const std::vector<std::string>& paths, int threads);
  void ListPictures(const std::string& folder, int threads);
  void LearnSizes(int threads);

  std::shared_ptr<const PictureFiles> shards_;  // or null
  std::vector<std::string> paths_;
  std::vector<uint64_t> sizes_;  // of each path, bytes
  uint64_t bytes_ = 0;
  int64_t size_ = 0;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> order_;
};

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_DATA_BENCH_PICTURES_H_
