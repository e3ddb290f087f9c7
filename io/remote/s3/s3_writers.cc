#include "io/remote/s3/s3_writers.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::remote {
namespace {

class ObjectWriter : public WritableFile {
 public:
  ObjectWriter(S3Client& client, std::string path, const UploadSizes& sizes)
      : client_(client), path_(std::move(path)), sizes_(sizes) {}

  Status Append(std::string_view bytes) override {
    synced_ = false;
    while (error_.ok() && !bytes.empty()) {
      // A part is put when more follows, so that one may be all there is.
      if (rest_.size() == sizes_.PartOfStream(parts_)) PutPart();
      const size_t room = sizes_.PartOfStream(parts_) - rest_.size();
      const size_t taken = std::min(bytes.size(), room);
      rest_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
    }
    return error_;
  }
  Status Sync() override {
    if (!error_.ok() || upload_ != nullptr || synced_) return error_;
    error_ = client_.Put(path_, rest_);
    synced_ = error_.ok();
    return error_;
  }
  Status Close() override {
    if (upload_ == nullptr) return Sync();
    if (error_.ok()) PutPart();
    if (error_.ok()) error_ = upload_->Complete();
    upload_.reset();
    synced_ = true;
    return error_;
  }

 private:
  void PutPart() {
    if (sizes_.PartOfStream(parts_) == 0) {
      error_ = ResourceExhausted("cannot write '" + path_ +
                                 "': it is larger than an object can be");
      return;
    }
    if (upload_ == nullptr) {
      auto upload = S3Upload::Begin(client_, path_);
      error_ = upload.status();
      if (!error_.ok()) return;
      upload_ = *std::move(upload);
    }
    error_ = upload_->Put(parts_++, rest_);
    rest_.clear();
  }

  S3Client& client_;
  const std::string path_;
  const UploadSizes sizes_;
  std::string rest_;  // behind the parts that were put
  std::unique_ptr<S3Upload> upload_;
  size_t parts_ = 0;
  bool synced_ = false;
  Status error_;
};

class ObjectAppender : public WritableFile {
 public:
  ObjectAppender(S3Client& client, std::string path, std::string bytes,
                 const UploadSizes& sizes, Clock& clock,
                 std::chrono::milliseconds interval)
      : client_(client),
        path_(std::move(path)),
        sizes_(sizes),
        clock_(clock),
        interval_(interval),
        bytes_(std::move(bytes)),
        put_(bytes_.size()),
        next_(clock.Now() + interval) {}
  ~ObjectAppender() override {
    // There is nobody left to tell.
    if (error_.ok()) (void)Sync();
  }

  Status Append(std::string_view bytes) override {
    SLUICE_RETURN_IF_ERROR(error_);
    bytes_.append(bytes);
    return clock_.Now() < next_ ? Status() : Sync();
  }
  Status Sync() override {
    if (!error_.ok() || put_ == bytes_.size()) return error_;
    const auto begin = clock_.Now();
    const std::string_view all = bytes_;
    error_ = PutPieces(client_, path_, {&all, 1}, sizes_);
    put_ = bytes_.size();
    const auto end = clock_.Now();
    next_ = end + std::max<std::chrono::steady_clock::duration>(
                      interval_, 20 * (end - begin));
    return error_;
  }
  Status Close() override { return Sync(); }

 private:
  S3Client& client_;
  const std::string path_;
  const UploadSizes sizes_;
  Clock& clock_;
  const std::chrono::milliseconds interval_;
  std::string bytes_;
  size_t put_;  // of them, bytes that are there
  std::chrono::steady_clock::time_point next_;
  Status error_;
};

}  // namespace

std::unique_ptr<WritableFile> NewObjectWriter(S3Client& client,
                                              const std::string& path,
                                              const UploadSizes& sizes) {
  return std::make_unique<ObjectWriter>(client, path, sizes);
}

std::unique_ptr<WritableFile> NewObjectAppender(
    S3Client& client, const std::string& path, std::string bytes,
    const UploadSizes& sizes, Clock& clock,
    std::chrono::milliseconds interval) {
  return std::make_unique<ObjectAppender>(client, path, std::move(bytes), sizes,
                                          clock, interval);
}

}  // namespace sluice::remote
