#include "io/records/file_datasets.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>

#include "io/files/crc32c.h"
#include "io/files/file.h"
#include "io/files/line_stream.h"
#include "io/files/without_query.h"
#include "io/pipeline/filter_stream.h"
#include "io/records/files_in_turn.h"
#include "io/records/record_manifest.h"
#include "io/records/record_stream.h"

namespace sluice {

std::string_view BytesOf(const Tensor& tensor) {
  if (tensor.dtype() != DType::kUInt8) {
    throw Error(Code::kInvalidArgument,
                fmt::format("wanted bytes, which are uint8, got {}{}",
                            NameOf(tensor.dtype()), tensor.shape().ToString()));
  }
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

namespace {

// Bytes at a file's begin that tell it apart from others of its size.
constexpr size_t kTelling = 64 << 10;

}  // namespace

std::string IdentityOfFiles(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    FileSystem& files = FileSystem::Default();
    const size_t size = files.Size(path).ValueOrThrow();
    const std::string begin = files.ReadPrefix(path, kTelling).ValueOrThrow();
    text +=
        fmt::format("{} {} {:08x}\n", FileNameOf(path), size, Crc32c(begin));
  }
  return fmt::format("{:08x}", Crc32c(text));
}

Dataset FilesInTurn(
    const std::string& what, const std::vector<std::string>& paths,
    const FileOptions& options,
    const std::function<std::unique_ptr<Generator>(size_t i)>& open) {
  const auto count = static_cast<int64_t>(paths.size());
  Dataset files = datasets::FromFunction(
      count,
      [](int64_t i) {
        return Example{{"file", Tensor::Scalar(i)}};
      },
      fmt::format("{}({}){}", what, IdentityOfFiles(paths), options.meaning));
  if (options.shuffle_seed && count > 0) {
    files = files.Shuffle(count, *options.shuffle_seed);
  }
  return files.Interleave(
      [open](const Example& example) {
        const auto i = static_cast<size_t>(example["file"].IntAt(0));
        return datasets::FromGenerator([open, i](uint64_t) { return open(i); },
                                       {.same_in_every_epoch = true});
      },
      options.cycle, 1, options.threads);
}

namespace datasets {
namespace {

Tensor TensorOf(const std::string& text) {
  Tensor bytes(DType::kUInt8, {static_cast<int64_t>(text.size())});
  if (!text.empty()) std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

// Of a stream with Open, Next and Skip of strings, and where there are `places`
// Place.
template <typename StringStream>
class Strings : public Generator {
 public:
  Strings(const std::string& path, bool places)
      : stream_(StringStream::Open(path).ValueOrThrow()), places_(places) {}
  bool Next(Example* example) override {
    if (!stream_->Next(&string_).ValueOrThrow()) return false;
    *example = {{"bytes", TensorOf(string_)}};
    if constexpr (requires { stream_->Place(); }) {
      if (places_) example->Set("place", TensorOf(stream_->Place()));
    }
    return true;
  }
  int64_t Skip(int64_t n) override { return stream_->Skip(n).ValueOrThrow(); }

 private:
  std::unique_ptr<StringStream> stream_;
  const bool places_;
  std::string string_;
};

template <typename StringStream>
Dataset StringsOf(const char* what, const std::vector<std::string>& paths,
                  const FileOptions& options) {
  return FilesInTurn(
      what, paths, options, [paths, places = options.places](size_t i) {
        return std::make_unique<Strings<StringStream>>(paths[i], places);
      });
}

}  // namespace

Dataset Records(const std::vector<std::string>& paths, FileOptions options) {
  Dataset records = StringsOf<RecordFileStream>("records", paths, options);
  const auto manifest = FindManifest(paths).ValueOrThrow();
  if (!manifest) return records;
  return ExpectSizeOf(records, manifest->records, manifest->path);
}

Dataset TextLines(const std::vector<std::string>& paths, FileOptions options) {
  return StringsOf<LineStream>("lines", paths, options);
}

}  // namespace datasets
}  // namespace sluice
