// TFRecord framing and TensorBoard events, against bytes made by hand, and on
// truncated and damaged files.
#include "io/summaries/event_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "io/files/crc32c.h"
#include "io/files/record.h"
#include "io/images/png.h"
#include "io/summaries/event_proto.h"
#include "io/summaries/histogram.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

using testing::FaultFileSystem;

// RFC 3720, appendix B.4, and the usual check value.
TEST_CASE("CRC-32C of known strings") {
  CHECK(Crc32c("123456789") == 0xe3069283u);
  CHECK(Crc32c("") == 0);
  CHECK(Crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(Crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  CHECK(Crc32c(ascending) == 0x46dd794eu);
}

std::vector<std::string> Payloads(std::string_view file, Status* error) {
  std::vector<std::string> payloads;
  RecordReader reader(file);
  std::string_view payload;
  for (;;) {
    const auto more = reader.Next(&payload);
    *error = more.status();
    if (!more.ok() || !*more) return payloads;
    payloads.emplace_back(payload);
  }
}

TEST_CASE("records: round trip, truncated at every byte, any bit flipped") {
  const std::vector<std::string> wanted = {"one", "", std::string(100, 'x')};
  std::string file;
  std::vector<size_t> ends = {0};
  for (const std::string& payload : wanted) {
    AppendRecord(payload, &file);
    ends.push_back(file.size());
  }
  CHECK(ends.back() == 3 * 16 + 103);
  Status error;
  CHECK(Payloads(file, &error) == wanted);
  CHECK(error.ok());
  for (size_t n = 0; n < file.size(); ++n) {
    const auto got = Payloads(file.substr(0, n), &error);
    const bool whole = std::find(ends.begin(), ends.end(), n) != ends.end();
    CHECK(error.ok() == whole);
    CHECK(got.size() <= wanted.size());
    CHECK(std::equal(got.begin(), got.end(), wanted.begin()));
  }
  for (size_t i = 0; i < file.size() * 8; ++i) {
    std::string bad = file;
    bad[i / 8] ^= static_cast<char>(1 << (i % 8));
    Payloads(bad, &error);
    CHECK(error.code() == Code::kDataLoss);
  }
}

TEST_CASE("histogram: every value in the bucket of its limits") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.1f, 2);
  std::vector<float> values = {0,
                               -0.0f,
                               1e-13f,
                               -1e-13f,
                               1e30f,
                               -1e30f,
                               1e-12f,
                               -1e-12f,
                               3,
                               std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 2000; ++i) {
    values.push_back(normal(random) *
                     std::pow(10.0f, static_cast<float>(i % 20 - 10)));
  }
  const Histogram h = HistogramOf(Tensor::Vector<float>(values));
  values.erase(values.begin() + 9, values.begin() + 11);
  CHECK(h.num == values.size());
  CHECK(h.min == -1e30f);
  CHECK(h.max == 1e30f);
  REQUIRE(h.limits.size() == h.counts.size());
  for (size_t i = 0; i < h.limits.size(); ++i) {
    const double low = i > 0 ? h.limits[i - 1] : -INFINITY;
    CHECK(low < h.limits[i]);
    const auto inside =
        std::count_if(values.begin(), values.end(),
                      [&](float v) { return v >= low && v < h.limits[i]; });
    CHECK(h.counts[i] == inside);
  }
  const Histogram half = HistogramOf(Tensor::Full(DType::kFloat16, {4}, 0.5));
  CHECK(half.sum == 2);
  CHECK(half.sum_squares == 1);
  REQUIRE(half.limits.size() == 2);
  CHECK(half.limits[1] / half.limits[0] == doctest::Approx(1.1));
  CHECK(HistogramOf(Tensor()).num == 0);
  CHECK(HistogramOf(Tensor()).limits.empty());
}

TEST_CASE("PNG") {
  const auto png = EncodePng(Tensor::Full(DType::kUInt8, {28, 28, 3}, 200));
#if SLUICE_HAVE_PNG
  REQUIRE(png.ok());
  CHECK(png->substr(0, 8) == "\x89PNG\r\n\x1a\n");
  // Width, height, 8 bits, colour type 2 (RGB).
  CHECK(png->substr(16, 10) == std::string("\0\0\0\x1c\0\0\0\x1c\x08\2", 10));
#else
  CHECK(png.status().code() == Code::kUnimplemented);
#endif
  for (const Tensor& bad :
       {Tensor(DType::kFloat32, {2, 2, 1}), Tensor(DType::kUInt8, {2, 2}),
        Tensor(DType::kUInt8, {2, 2, 2}), Tensor(DType::kUInt8, {0, 2, 1})}) {
    CHECK(EncodePng(bad).status().code() == Code::kInvalidArgument);
  }
}

#if SLUICE_HAVE_PROTOBUF

// The bytes of protobuf's wire format for
// Event{wall_time: 1.5, step: 3, summary{value{tag: "loss", 0.25}}}.
TEST_CASE("a scalar event, byte by byte") {
  const std::string wanted(
      "\x09\0\0\0\0\0\0\xf8\x3f"  // field 1, double
      "\x10\x03"                  // field 2, varint
      "\x2a\x0d"                  // field 5, 13 bytes: Summary
      "\x0a\x0b"                  // field 1, 11 bytes: Value
      "\x0a\x04loss"              // field 1, string
      "\x15\0\0\x80\x3e",         // field 2, float
      26);
  const auto got = EncodeScalarEvent({1.5, 3}, "loss", 0.25);
  REQUIRE(got.ok());
  CHECK(*got == wanted);
}

// A file with one event of every kind; returns its path.
std::string WriteAll(FaultFileSystem& files) {
  auto opened = EventWriter::Open("logs/train", ".x", files);
  REQUIRE_MESSAGE(opened.ok(), opened.status().message());
  EventWriter& writer = **opened;
  CHECK(writer.Scalar("loss", 10, 0.5).ok());
  CHECK(writer.Histogram("weights", 11, Tensor::Full(DType::kFloat32, {3}, 2))
            .ok());
  CHECK(writer
            .Graph({{{"x", "Placeholder", {}, "/cpu:0", {{kUnknown, 2}}, {}},
                     {"y/neg", "neg", {"x", "^x"}, "", {}, {{"a", "1"}}}}})
            .ok());
#if SLUICE_HAVE_PNG
  CHECK(writer.Image("digit", 12, Tensor::Full(DType::kFloat32, {4, 5, 1}, 0.5))
            .ok());
#endif
  CHECK(writer.Flush().ok());
  return writer.path();
}

TEST_CASE("events of every kind can be read back") {
  FaultFileSystem files;
  const std::string path = WriteAll(files);
  CHECK(path.starts_with("logs/train/events.out.tfevents."));
  CHECK(path.ends_with(".x"));
  const auto file = ReadEvents(path, files);
  REQUIRE(file.ok());
  CHECK(file->warning.empty());
  REQUIRE(file->records.size() >= 4);
  CHECK(file->records[0].kind == "version");
  CHECK(file->records[0].summary == "brain.Event:2");
  CHECK(file->records[1].kind == "scalar");
  CHECK(file->records[1].tag == "loss");
  CHECK(file->records[1].step == 10);
  CHECK(file->records[1].value == 0.5);
  CHECK(file->records[1].wall_time > 1.6e9);
  CHECK(file->records[2].summary == "3 values in [2, 2], mean 2");
  CHECK(file->records[3].summary == "2 nodes");
#if SLUICE_HAVE_PNG
  CHECK(file->records[4].kind == "image");
  CHECK(file->records[4].summary.starts_with("4x5"));
#endif
}

TEST_CASE("a truncated event file gives what is whole, and says so") {
  FaultFileSystem files;
  const std::string bytes = *files.Read(WriteAll(files));
  const size_t all = ParseEvents(bytes)->records.size();
  int without_warning = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto file = ParseEvents(bytes.substr(0, n));
    REQUIRE(file.ok());
    CHECK(file->records.size() < all);
    without_warning += file->warning.empty();
  }
  CHECK(without_warning == static_cast<int>(all));
  // A record that is whole but no event.
  std::string junk = bytes;
  AppendRecord("\xff\xff\xff", &junk);
  CHECK(ParseEvents(junk)->records.size() == all);
  CHECK(!ParseEvents(junk)->warning.empty());
}

TEST_CASE("a full disk stops the writer, once and for all") {
  FaultFileSystem files;
  auto writer = EventWriter::Open("logs", "", files);
  REQUIRE(writer.ok());
  files.FailAt(files.operations() + 1, FaultFileSystem::Fault::kDiskFull);
  CHECK((*writer)->Scalar("a", 1, 1).ok());
  CHECK((*writer)->Flush().code() == Code::kResourceExhausted);
  files.Restart(FaultFileSystem::Loss::kNothing);
  CHECK((*writer)->Scalar("a", 2, 1).code() == Code::kResourceExhausted);
  const auto file = ReadEvents((*writer)->path(), files);
  CHECK(file->records.size() == 1);
  CHECK(!file->warning.empty());
  files.SetReadOnly(true);
  CHECK(EventWriter::Open("more", "", files).status().code() ==
        Code::kUnavailable);
}

#else

TEST_CASE("without protobuf there is one clear error") {
  FaultFileSystem files;
  const Status status = EventWriter::Open("logs", "", files).status();
  CHECK(status.code() == Code::kUnimplemented);
  CHECK(status.message().find("protobuf") != std::string::npos);
  CHECK(!*files.Exists("logs"));
}

#endif

}  // namespace
}  // namespace sluice
