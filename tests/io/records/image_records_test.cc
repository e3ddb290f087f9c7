// Records of pictures: the features they are read from and written as, the
// parts of a folder, the names of classes.
#include "io/records/image_records.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <random>

#include "io/files/record.h"
#include "io/images/png.h"
#include "io/records/tf_example.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::TemporaryFolder;
using Features = std::vector<std::pair<std::string, TfFeature>>;
using Strings = std::vector<std::string>;
using Integers = std::vector<int64_t>;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

#if SLUICE_HAVE_PROTOBUF

// Begins like a picture.
std::string Picture(std::mt19937& random, bool jpeg) {
  std::string bytes = jpeg ? "\xff\xd8\xff" : "\x89PNG\r\n\x1a\n";
  for (auto n = random() % 300; n > 0; --n) {
    bytes += static_cast<char>(random());
  }
  return bytes;
}

std::string Name(std::mt19937& random) {
  std::string name;
  for (auto n = random() % 20; n > 0; --n) {
    name += static_cast<char>('a' + random() % 26);
  }
  return name;
}

TEST_CASE("a record is written in the features of the ImageNet scripts") {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const bool jpeg = random() % 2 == 0;
    const std::string picture = Picture(random, jpeg);
    const std::string name = Name(random), file = Name(random);
    const auto label = static_cast<int64_t>(random() % 2000) - 1000;
    const std::string bytes =
        EncodeImageRecord({picture, label, name, file}).ValueOrThrow();
    const TfExample example = TfExample::Parse(bytes).ValueOrThrow();
    CHECK(example.Bytes("image/encoded").ValueOrThrow() == picture);
    CHECK(example.Bytes("image/format").ValueOrThrow() ==
          (jpeg ? "JPEG" : "PNG"));
    CHECK(example.Int("image/class/label").ValueOrThrow() == label);
    CHECK(example.contains("image/class/text") == !name.empty());
    CHECK(example.contains("image/filename") == !file.empty());

    const ImageRecord read = ParseImageRecord(bytes).ValueOrThrow();
    CHECK(read.encoded == picture);
    CHECK(read.label == label);
    CHECK(read.class_name == name);
    CHECK(read.file == file);
    CHECK(read.encoded.data() >= bytes.data());
    CHECK(read.encoded.data() + read.encoded.size() <=
          bytes.data() + bytes.size());
  }
  CHECK(EncodeImageRecord({"GIF89a", 0}).status().code() ==
        Code::kInvalidArgument);
  CHECK(Contains(EncodeImageRecord({"", 0}).status().message(), "empty"));
}

Status ErrorIn(const Features& features) {
  return ParseImageRecord(EncodeTfExample(features).ValueOrThrow()).status();
}

TEST_CASE("the features of TensorFlow Datasets are read as well") {
  Features features = {{"image", Strings{"picture"}},
                       {"label", Integers{7}},
                       {"file_name", Strings{"a.jpg"}}};
  const std::string plain = EncodeTfExample(features).ValueOrThrow();
  ImageRecord record = ParseImageRecord(plain).ValueOrThrow();
  CHECK(record.encoded == "picture");
  CHECK(record.label == 7);
  CHECK(record.file == "a.jpg");
  CHECK(record.class_name.empty());
  // The scripts' own go first, and what is only told may be anything.
  features.emplace_back("image/encoded", Strings{"other"});
  features.emplace_back("image/class/label", Integers{8});
  features.emplace_back("image/class/text", Integers{1, 2});
  features.emplace_back("image/filename", Strings{});
  const std::string both = EncodeTfExample(features).ValueOrThrow();
  record = ParseImageRecord(both).ValueOrThrow();
  CHECK(record.encoded == "other");
  CHECK(record.label == 8);
  CHECK(record.file.empty());
}

TEST_CASE("what lacks in a record is said, and what is there instead") {
  const std::pair<std::string, TfFeature> image = {"image", Strings{"x"}},
                                          label = {"label", Integers{1}};
  Status error = ErrorIn({label, {"depth", Integers{3}}});
  CHECK(error.code() == Code::kNotFound);
  CHECK(Contains(error.message(), "no picture"));
  CHECK(Contains(error.message(), "depth, label"));
  error = ErrorIn({image});
  CHECK(error.code() == Code::kNotFound);
  CHECK(Contains(error.message(), "no label"));
  for (const TfFeature& wrong : std::vector<TfFeature>{
           Strings{"1"}, std::vector<float>{1}, Integers{1, 2}, Integers{}}) {
    CHECK(ErrorIn({image, {"label", wrong}}).code() == Code::kInvalidArgument);
  }
  CHECK(ErrorIn({{"image", Integers{1}}, label}).code() ==
        Code::kInvalidArgument);
  CHECK(ParseImageRecord("no example").status().code() == Code::kDataLoss);
}

#endif  // SLUICE_HAVE_PROTOBUF

// A file of records whose payloads are these.
void WriteRecords(const std::string& path, const Strings& payloads) {
  std::string bytes;
  for (const std::string& payload : payloads) AppendRecord(payload, &bytes);
  Write(path, bytes);
}

bool HasImageRecords(const std::string& folder) {
  const auto names = FileSystem::Posix().List(folder).ValueOrThrow();
  return HasImageShards({folder, names}, ShardKind::kRecords);
}

TEST_CASE("a part is found under its spellings, in their order") {
  const TemporaryFolder folder;
  const auto first = [&](const char* part) {
    return OpenImageRecords(folder.path(), part).files->Read(0).ValueOrThrow();
  };
  CHECK_FALSE(HasImageRecords(folder.path()));
  CHECK(Contains(ErrorOf([&] { first("validation"); }),
                 "wanted files such as validation-00000-of-00008 or val-"));
  for (const std::string part : {"test", "val", "validation"}) {
    WriteRecords(folder / (part + "-00000-of-00001"), {part});
    CHECK(HasImageRecords(folder.path()));
    CHECK(first("validation") == part);
    CHECK(first("test") == "test");
    CHECK(Contains(ErrorOf([&] { first("train"); }), "train-00000"));
  }
  WriteRecords(folder / "some-train.tfrecord-00000-of-00002", {"a", "b"});
  CHECK(HasImageRecords(folder.path()));
  CHECK(ErrorOf([&] { first("train"); }) != "(no error)");  // one is missing
  WriteRecords(folder / "some-train.tfrecord-00001-of-00002", {"c"});
  CHECK(first("train") == "a");
  CHECK(OpenImageRecords(folder.path(), "train", 3).files->size() == 3);
}

TEST_CASE("a folder whose only shards lack others has records all the same") {
  const TemporaryFolder folder;
  WriteRecords(folder / "train-00001-of-00002", {"a"});
  CHECK(HasImageRecords(folder.path()));
}

TEST_CASE("class names are the lines of labels.txt or its like") {
  const TemporaryFolder folder;
  const auto names = [&] { return ReadClassNames(folder.path()); };
  CHECK(names()->empty());
  Write(folder / "coarse.labels.txt", "animal\n");
  Write(folder / "._label.labels.txt", "notes of macOS\n");
  CHECK(*names() == Strings{"animal"});
  Write(folder / "fine.labels.txt", "ant\n");
  CHECK(names().status().code() == Code::kInvalidArgument);
  CHECK(Contains(names().status().message(),
                 "coarse.labels.txt, fine.labels.txt"));
  Write(folder / "label.labels.txt", "ant\r\nbee, honey\r\n\r\n\n");
  CHECK(*names() == Strings{"ant", "bee, honey"});
  Write(folder / "label.labels.txt", "ant\n\nbee\n");
  CHECK(Contains(names().status().message(), "label.labels.txt', line 2"));
  for (const auto& [text, lines] :
       std::vector<std::pair<std::string, Strings>>{{"", {}},
                                                    {"\n", {}},
                                                    {"a", {"a"}},
                                                    {"a\nb", {"a", "b"}},
                                                    {"\xef\xbb\xbf"
                                                     "0\r\n1\n",
                                                     {"0", "1"}}}) {
    Write(folder / "labels.txt", text);
    CHECK(*names() == lines);
  }
  CHECK(ReadClassNames(folder / "none").status().code() == Code::kNotFound);
}

}  // namespace
}  // namespace sluice
