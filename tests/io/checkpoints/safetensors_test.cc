// safetensors: against bytes written out by hand, round trips, and truncated,
// damaged and hostile files.
#include "io/checkpoints/safetensors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>

#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;

// A file as the format's description has it.
std::string File(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(uint64_t{header.size()} >> (8 * i));
  }
  return bytes + header + data;
}

Code CodeOf(const std::string& header, const std::string& data) {
  return ParseSafetensors(File(header, data), "f").status().code();
}

std::vector<NamedTensor> EveryDType() {
  std::vector<NamedTensor> tensors = {
      {"scalar", Tensor::Scalar(2.5f)},
      {"empty", Tensor(DType::kFloat64, {0, 3})},
      {"odd", Tensor::Array<uint8_t>({3}, {1, 2, 3})},
      {"flags", Tensor::Array<bool>({2}, {true, false})},
      {"name \"with\" \\ ünïcode/slot", Tensor::Scalar<int64_t>(-7)}};
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.push_back(
        {std::string(NameOf(dtype)), Tensor::Full(dtype, {2, 3}, 1)});
  }
  return tensors;
}

const Metadata kMetadata = {{"step", "12"}, {"text", "a\nb \"c\""}};

std::string Written(std::span<const NamedTensor> tensors,
                    const Metadata& metadata) {
  FaultFileSystem files;
  REQUIRE(WriteSafetensors("f", tensors, metadata, files).ok());
  return *files.Read("f");
}

const Tensor* Find(const std::vector<NamedTensor>& tensors,
                   const std::string& name) {
  for (const NamedTensor& t : tensors) {
    if (t.name == name) return &t.tensor;
  }
  return nullptr;
}

bool Same(const Safetensors& file, std::span<const NamedTensor> tensors,
          const Metadata& metadata) {
  if (file.metadata != metadata || file.tensors.size() != tensors.size()) {
    return false;
  }
  for (const NamedTensor& t : tensors) {
    const Tensor* read = Find(file.tensors, t.name);
    if (read == nullptr || !read->BitEqual(t.tensor)) return false;
  }
  return true;
}

TEST_CASE("a file made by hand") {
  const auto file = ParseSafetensors(
      File(R"({"__metadata__":{"who":"me"},)"
           R"("b":{"dtype":"I32","shape":[1,2],"data_offsets":[4,12]},)"
           R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
           std::string("\0\0\xc0\x3f\1\0\0\0\xff\xff\xff\xff", 12)),
      "f");
  REQUIRE(file.ok());
  CHECK(file->metadata == Metadata{{"who", "me"}});
  REQUIRE(file->tensors.size() == 2);
  CHECK(file->tensors[0].name == "a");
  CHECK(file->tensors[0].tensor.BitEqual(Tensor::Scalar(1.5f)));
  CHECK(file->tensors[1].tensor.BitEqual(
      Tensor::Array<int32_t>({1, 2}, {1, -1})));
}

TEST_CASE("every dtype makes the round trip") {
  const auto tensors = EveryDType();
  const std::string bytes = Written(tensors, kMetadata);
  const auto file = ParseSafetensors(bytes, "f");
  REQUIRE_MESSAGE(file.ok(), file.status().message());
  CHECK(Same(*file, tensors, kMetadata));
  CHECK(Written({}, {}).size() == 64);
  CHECK(Same(*ParseSafetensors(Written({}, {}), "f"), {}, {}));
}

TEST_CASE("data are aligned") {
  const std::string bytes = Written(EveryDType(), kMetadata);
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  CHECK((8 + length) % 64 == 0);
  FaultFileSystem files;
  REQUIRE(files.WriteAtomically("f", bytes).ok());
  const auto header = ReadSafetensorsHeader("f", files);
  for (const TensorInfo& info : header->tensors) {
    CHECK(info.begin % SizeOf(info.dtype) == 0);
  }
}

TEST_CASE("the header alone") {
  FaultFileSystem files;
  const auto tensors = EveryDType();
  REQUIRE(WriteSafetensors("f", tensors, kMetadata, files).ok());
  const auto header = ReadSafetensorsHeader("f", files);
  REQUIRE(header.ok());
  CHECK(header->metadata == kMetadata);
  CHECK(header->tensors.size() == tensors.size());
  REQUIRE(header->checksum);
  CHECK(header->checksum->size() == 8);
  REQUIRE(WriteSafetensors("other", tensors, {}, files).ok());
  CHECK(ReadSafetensorsHeader("other", files)->checksum != header->checksum);
  for (const TensorInfo& info : header->tensors) {
    const Tensor* tensor = Find(tensors, info.name);
    REQUIRE(tensor != nullptr);
    CHECK(info.dtype == tensor->dtype());
    CHECK(info.shape == tensor->shape());
  }
  CHECK(ReadSafetensorsHeader("none", files).status().code() ==
        Code::kNotFound);
  REQUIRE(
      files.WriteAtomically("short", files.ReadPrefix("f", 40).ValueOrThrow())
          .ok());
  CHECK(ReadSafetensorsHeader("short", files).status().code() ==
        Code::kDataLoss);
}

TEST_CASE("truncated at every byte is an error that names the file") {
  const std::string bytes = Written(EveryDType(), kMetadata);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Status status = ParseSafetensors(bytes.substr(0, n), "my.f").status();
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message().find("my.f") != std::string::npos);
  }
  CHECK(ParseSafetensors(bytes + "x", "f").status().code() == Code::kDataLoss);
}

TEST_CASE("any flipped bit is an error or changes nothing") {
  const auto tensors = EveryDType();
  const std::string bytes = Written(tensors, kMetadata);
  int errors = 0;
  int without_checksum = 0;
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string bad = bytes;
    bad[i / 8] ^= static_cast<char>(1 << (i % 8));
    const auto file = ParseSafetensors(bad, "f");
    if (!file.ok()) {
      ++errors;
    } else if (file->checksummed) {
      // A space became a line feed.
      CHECK(Same(*file, tensors, kMetadata));
    } else {
      ++without_checksum;  // the name "sluice.crc32" was hit
    }
  }
  CHECK(without_checksum <= 12 * 8);
  CHECK(errors > static_cast<int>(bytes.size()) * 7);
}

TEST_CASE("hostile headers") {
  const std::string four(4, '\0');
  const auto entry = [](const char* dtype, const char* shape,
                        const char* offsets) {
    return std::string("{\"a\":{\"dtype\":") + dtype + ",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  const auto u8 = [](const char* name, int elements, int begin, int end) {
    return fmt::format(
        R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
        elements, begin, end);
  };
  CHECK(CodeOf(entry("\"F32\"", "[1]", "[0,4]"), four) == Code::kOk);
  CHECK(CodeOf("{" + u8("a", 1, 0, 1) + "," + u8("b", 3, 1, 4) + "}", four) ==
        Code::kOk);
  CHECK(CodeOf(entry("\"X9\"", "[1]", "[0,4]"), four) == Code::kUnimplemented);
  for (const std::string& header : std::vector<std::string>{
           "", "{", "[]", "null", "{} {}", "{\"a\":1}", "{\"a\":{}}",
           "{\"a\":{\"dtype\":\"F32\"}}", "\xff\xfe",
           entry("7", "[1]", "[0,4]"), entry("\"F32\"", "1", "[0,4]"),
           entry("\"F32\"", "[-1]", "[0,4]"),
           entry("\"F32\"", "[1.0]", "[0,4]"),
           entry("\"F32\"", "[\"1\"]", "[0,4]"),
           entry("\"F32\"", "[2]", "[0,4]"), entry("\"F32\"", "[1]", "[0,5]"),
           entry("\"F32\"", "[1]", "[4,0]"), entry("\"F32\"", "[1]", "[-4,0]"),
           entry("\"F32\"", "[1]", "[4,8]"), entry("\"F32\"", "[1]", "[0]"),
           entry("\"F32\"", "[1]", "[0,18446744073709551615]"),
           entry("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"),
           entry("\"F32\"", "[4611686018427387904,4]", "[0,0]"),
           entry("\"F64\"", "[2305843009213693952]", "[0,0]"),
           entry("\"F32\"", "[18446744073709551615,0]", "[0,0]"),
           entry("\"F32\"", "[0,16777216,16777216]", "[0,0]"),
           // A hole, an overlap, a tensor listed twice, text that is no string.
           "{" + u8("a", 1, 0, 1) + "," + u8("b", 2, 2, 4) + "}",
           "{" + u8("a", 3, 0, 3) + "," + u8("b", 2, 2, 4) + "}",
           "{" + u8("a", 4, 0, 4) + "," + u8("a", 4, 0, 4) + "}",
           R"({"__metadata__":{"k":1},)" + u8("a", 4, 0, 4) + "}",
           R"({"__metadata__":[],)" + u8("a", 4, 0, 4) + "}",
           // Wrong checksum.
           R"({"__metadata__":{"sluice.crc32":"0"},)" + u8("a", 4, 0, 4) + "}",
           std::string(100'000, '['), "{\"a\":" + std::string(100'000, '[')}) {
    CAPTURE(header.substr(0, 200));
    CHECK(CodeOf(header, four) == Code::kDataLoss);
    CHECK(CodeOf(header, "") == Code::kDataLoss);
  }
  // Lengths that overflow or would take all memory.
  CHECK(!ParseSafetensors(std::string(8, '\xff') + "{}", "f").ok());
  CHECK(!ParseSafetensors(std::string("\0\0\0\0\1\0\0\0{}", 10), "f").ok());
}

TEST_CASE("a BOOL other than 0 and 1 is refused") {
  const char header[] =
      R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
  CHECK(CodeOf(header, std::string("\1\0", 2)) == Code::kOk);
  CHECK(CodeOf(header, std::string("\1\2", 2)) == Code::kDataLoss);
}

TEST_CASE("bad names are refused before anything is written") {
  FaultFileSystem files;
  const Tensor t = Tensor::Scalar(1.0f);
  for (const auto& tensors :
       std::vector<std::vector<NamedTensor>>{{{"", t}},
                                             {{"__metadata__", t}},
                                             {{"a", t}, {"a", t}},
                                             {{"\xff", t}}}) {
    CHECK(WriteSafetensors("f", tensors, {}, files).code() ==
          Code::kInvalidArgument);
  }
  CHECK(WriteSafetensors("f", {}, {{"k", "\xff"}}, files).code() ==
        Code::kInvalidArgument);
  CHECK(!*files.Exists("f"));
}

}  // namespace
}  // namespace sluice
