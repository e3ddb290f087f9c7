// `sluice inspect` on safetensors files: what it says of their values, that no
// damage goes unseen, and in what two of them differ.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "io/checkpoints/checkpoint.h"
#include "io/checkpoints/safetensors.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/last_object.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Contains;

using Json = nlohmann::ordered_json;
using Tensors = std::vector<NamedTensor>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Outcome {
  int exit_code = 0;
  std::string out, err;
};

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class Tool {
 public:
  // The shell splits `arguments`.
  Outcome Inspect(const std::string& arguments) const {
    const std::string command = SLUICE_BIN_DIR "/sluice inspect " + arguments +
                                " > " + (folder_ / "out") + " 2> " +
                                (folder_ / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            BytesOf(folder_ / "out"), BytesOf(folder_ / "err")};
  }
  // One object per line that it prints.
  std::vector<Json> InspectAsJson(const std::string& arguments) const {
    std::vector<Json> objects =
        testing::Objects(Inspect("--json " + arguments).out);
    REQUIRE_FALSE(objects.empty());
    return objects;
  }
  // These return the file's path.
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::string Write(const std::string& name, const Tensors& tensors,
                    const Metadata& metadata = {}) const {
    ThrowIfError(WriteSafetensors(folder_ / name, tensors, metadata));
    return folder_ / name;
  }

 private:
  testing::TemporaryFolder folder_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The line of one tensor.
Json LineOf(const std::vector<Json>& lines, const std::string& tensor) {
  for (const Json& line : lines) {
    if (line.value("tensor", "") == tensor) return line;
  }
  FAIL("no line of " << tensor);
  return {};
}

// ---- Statistics.

void CheckStatistics(const Json& line, const Tensor& tensor) {
  CAPTURE(line.dump());
  std::vector<double> finite;
  int nan = 0;
  int infinite = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = tensor.At(i);
    if (std::isnan(x)) {
      ++nan;
    } else if (std::isinf(x)) {
      ++infinite;
    } else {
      finite.push_back(x);
    }
  }
  REQUIRE_FALSE(finite.empty());
  const auto n = static_cast<double>(finite.size());
  double mean = 0;
  for (const double x : finite) mean += x / n;
  double variance = 0;
  for (const double x : finite) variance += (x - mean) * (x - mean) / n;
  const auto near = [](double x) { return doctest::Approx(x).epsilon(1e-10); };
  CHECK_EQ(line.at("min").get<double>(),
           *std::min_element(finite.begin(), finite.end()));
  CHECK_EQ(line.at("max").get<double>(),
           *std::max_element(finite.begin(), finite.end()));
  CHECK_EQ(line.at("mean").get<double>(), near(mean));
  CHECK_EQ(line.at("std").get<double>(), near(std::sqrt(variance)));
  CHECK_EQ(line.at("nan"), nan);
  CHECK_EQ(line.at("inf"), infinite);
}

// Every third element is 0.
Tensor Random(DType dtype) {
  Tensor tensor(DType::kFloat32, {7, 11});
  std::mt19937 random(static_cast<unsigned>(dtype) + 1);
  std::uniform_real_distribution<float> number(-90, 90);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.data<float>()[i] = i % 3 == 0 ? 0 : number(random);
  }
  return tensor.Cast(dtype);
}

TEST_CASE("statistics are those of a plain loop, for every dtype") {
  const Tool tool;
  Tensors tensors;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.push_back({std::string(NameOf(dtype)), Random(dtype)});
  }
  const auto lines = tool.InspectAsJson(tool.Write("f.safetensors", tensors));
  for (const NamedTensor& t : tensors) {
    CheckStatistics(LineOf(lines, t.name), t.tensor);
  }
}

TEST_CASE("statistics in words") {
  const Tool tool;
  const std::string file = tool.Write(
      "f.safetensors", {{"a", Tensor::Array<float>({4}, {1, 2, 3, 4})},
                        {"b", Tensor::Array<float>({2}, {kNan, -kInfinity})},
                        {"c", Tensor(DType::kFloat32, {0, 3})}});
  const Outcome outcome = tool.Inspect(file);
  CHECK_EQ(outcome.exit_code, 0);
  CHECK_EQ(outcome.err, "");
  CHECK_EQ(outcome.out,
           "a  float32   [4]    min 1           max 4           mean 2.5      "
           "   std 1.118\n"
           "b  float32   [2]    1 NaN 1 infinite\n"
           "c  float32   [0,3]\n"
           "3 tensors, 6 elements, 24 bytes\n"
           "checksum: right\n");
}

TEST_CASE("what is not finite is counted and left out") {
  const Tool tool;
  const Tensor odd =
      Tensor::Array<float>({6}, {1, kNan, 3, kInfinity, -kInfinity, kNan});
  Tensors tensors = {{"none", Tensor::Array<float>({2}, {kNan, kInfinity})},
                     {"empty", Tensor(DType::kFloat32, {0})}};
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    tensors.push_back({std::string(NameOf(dtype)), odd.Cast(dtype)});
  }
  const auto lines = tool.InspectAsJson(tool.Write("f.safetensors", tensors));
  for (size_t i = 2; i < tensors.size(); ++i) {
    const Json line = LineOf(lines, tensors[i].name);
    CheckStatistics(line, tensors[i].tensor);
    CHECK_EQ(line.at("nan"), 2);
    CHECK_EQ(line.at("inf"), 2);
  }
  const Json none = LineOf(lines, "none");
  CHECK_EQ(none.at("nan"), 1);
  CHECK_EQ(none.at("inf"), 1);
  CHECK_FALSE(none.contains("min"));
  CHECK_FALSE(LineOf(lines, "empty").contains("nan"));
}

TEST_CASE("extreme values") {
  const Tool tool;
  using Limits = std::numeric_limits<int64_t>;
  const auto lines = tool.InspectAsJson(
      tool.Write("f.safetensors",
                 {{"integers",
                   Tensor::Array<int64_t>({2}, {Limits::min(), Limits::max()})},
                  {"large", Tensor::Array<double>({2}, {1.5e308, 1.5e308})},
                  {"same", Tensor::Full(DType::kFloat32, {1000}, 0.1)}}));
  const Json integers = LineOf(lines, "integers");
  CHECK_EQ(integers.at("min").get<int64_t>(), Limits::min());
  CHECK_EQ(integers.at("max").get<int64_t>(), Limits::max());
  // Their sum is infinite, which JSON cannot say.
  const Json large = LineOf(lines, "large");
  CHECK_EQ(large.at("max"), 1.5e308);
  CHECK_FALSE(large.contains("mean"));
  CHECK_EQ(LineOf(lines, "same").at("mean"), static_cast<double>(0.1f));
  CHECK_EQ(LineOf(lines, "same").at("std"), 0.0);
}

// ---- Damage.

Checkpoint SmallCheckpoint(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.tensors = {
      {"weights", Tensor::Full(DType::kFloat32, {3, 5}, 0.25)},
      {"global_step", Tensor::Scalar<int64_t>(step)}};
  return checkpoint;
}

std::string BytesOf(const Checkpoint& checkpoint) {
  testing::FaultFileSystem files;
  ThrowIfError(WriteCheckpoint("c", checkpoint, files));
  return files.Read("c").ValueOrThrow();
}

std::string Flipped(std::string bytes, size_t bit) {
  bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  return bytes;
}

void CheckError(const Outcome& outcome, const std::string& message,
                int exit_code = 1) {
  CHECK_EQ(outcome.exit_code, exit_code);
  CHECK(outcome.err.starts_with("sluice: "));
  CHECK_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  CHECK(Contains(outcome.err, message));
}

TEST_CASE("a flipped bit of a checkpoint is an error") {
  const Tool tool;
  const std::string bytes = BytesOf(SmallCheckpoint(7));
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const size_t bit = random() % (bytes.size() * 8);
    CAPTURE(bit);
    CheckError(tool.Inspect(tool.Write("c.safetensors", Flipped(bytes, bit))),
               "c.safetensors");
  }
}

// All bits, in this process for speed: also the padding's, and those that only
// make a capital of one of the checksum's letters.
TEST_CASE("every flipped bit of a checkpoint is an error") {
  testing::FaultFileSystem files;
  for (int64_t step = 1; step <= 4; ++step) {
    const std::string bytes = BytesOf(SmallCheckpoint(step));
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      ThrowIfError(files.WriteAtomically("c", Flipped(bytes, bit)));
      CAPTURE(bit);
      CHECK_FALSE(ReadCheckpoint("c", files).ok());
    }
  }
}

TEST_CASE("the tensors of a damaged file are listed, then it fails") {
  const Tool tool;
  const std::string bytes = BytesOf(SmallCheckpoint(7));
  const std::string whole = tool.Write("whole.safetensors", bytes);
  const std::string bad =
      tool.Write("bad.safetensors", Flipped(bytes, 8 * bytes.size() - 1));
  const Outcome text = tool.Inspect(bad);
  CheckError(text, "checksum is wrong");
  CHECK(Contains(text.out, "weights      float32   [3,5]\n"));
  CHECK_FALSE(Has(text.out, "min"));
  CHECK_FALSE(Has(text.out, "checksum"));
  const auto lines = tool.InspectAsJson(bad);
  CHECK_FALSE(LineOf(lines, "weights").contains("min"));
  CHECK_FALSE(lines.back().contains("checksum"));

  // The header alone shows nothing.
  const Outcome quick = tool.Inspect("--quick " + bad);
  CHECK_EQ(quick.exit_code, 0);
  CHECK_EQ(quick.err, "");
  CHECK_EQ(quick.out, text.out);
  CHECK_EQ(quick.out, tool.Inspect("--quick " + whole).out);

  // Without a header there is nothing to list.
  const Outcome headless =
      tool.Inspect(tool.Write("bad.safetensors", Flipped(bytes, 8 * 8)));
  CheckError(headless, "header");
  CHECK_EQ(headless.out, "");
}

TEST_CASE("only a checkpoint of ours must have a checksum") {
  const Tool tool;
  std::string bytes = BytesOf(SmallCheckpoint(7));
  const std::string key = "sluice.crc32";
  bytes.replace(bytes.find(key), key.size(), "sluice.crc33");
  CheckError(tool.Inspect(tool.Write("c.safetensors", bytes)),
             "its checksum is missing");

  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )";
  const std::string length = {
      static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  const std::string foreign =
      tool.Write("foreign.safetensors", length + header + std::string(8, '\0'));
  const Outcome text = tool.Inspect(foreign);
  CHECK_EQ(text.exit_code, 0);
  CHECK(Contains(text.out, "min 0 "));
  CHECK(Contains(text.out, "\nchecksum: none"));
  const Json last = tool.InspectAsJson(foreign).back();
  CHECK_EQ(last.at("file"), foreign);
  CHECK_EQ(last.at("tensors"), 1);
  CHECK_EQ(last.at("elements"), 2);
  CHECK_EQ(last.at("bytes"), 8);
  CHECK_EQ(last.at("checksum"), "none");
}

// ---- Two files.

const Tensor kWeights = Tensor::Array<float>({2, 3}, {1, 2, 3, 4, 5, 6});
const Tensor kBias = Tensor::Array<float>({2}, {1, 2});

// Of a file that holds kWeights, kBias and the epoch 3, and another.
Outcome CompareWith(const Tool& tool, const Tensors& tensors,
                    const Metadata& metadata = {{"epoch", "3"}},
                    const std::string& flags = "") {
  const std::string first =
      tool.Write("a.safetensors", {{"weights", kWeights}, {"bias", kBias}},
                 {{"epoch", "3"}});
  const std::string second = tool.Write("b.safetensors", tensors, metadata);
  Outcome outcome = tool.Inspect(flags + " " + first + " " + second);
  CHECK_EQ(outcome.err, "");
  return outcome;
}

void CheckDifference(const Outcome& outcome, const std::string& text) {
  CHECK_EQ(outcome.exit_code, 1);
  CHECK_EQ(outcome.out, text);
}

TEST_CASE("equal files") {
  const Tool tool;
  const Outcome outcome =
      CompareWith(tool, {{"bias", kBias}, {"weights", kWeights}});
  CHECK_EQ(outcome.exit_code, 0);
  CHECK_EQ(outcome.out, "equal: all 2 tensors and the metadata\n");
}

TEST_CASE("other values") {
  const Tool tool;
  const Tensor other = Tensor::Array<float>({2, 3}, {1.25, 2, 3, 4, 5, 6.5});
  const Tensors tensors = {{"weights", other}, {"bias", kBias}};
  CheckDifference(CompareWith(tool, tensors),
                  "weights: 2 of 6 elements differ, most by 0.5 at [1,2]\n"
                  "1 of 2 tensors differ, 0 of 1 metadata keys\n");
  const Outcome json = CompareWith(tool, tensors, {{"epoch", "3"}}, "--json");
  CHECK_EQ(json.exit_code, 1);
  std::istringstream lines(json.out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  const Json difference = Json::parse(line);
  CHECK_EQ(difference.at("tensor"), "weights");
  CHECK_EQ(difference.at("differs"), "values");
  CHECK_EQ(difference.at("differing"), 2);
  CHECK_EQ(difference.at("elements"), 6);
  CHECK_EQ(difference.at("largest"), 0.5);
  CHECK_EQ(difference.at("at"), Json({1, 2}));
  REQUIRE(std::getline(lines, line));
  const Json summary = Json::parse(line);
  CHECK_EQ(summary.at("equal"), false);
  CHECK_EQ(summary.at("values_compared"), true);
  CHECK_EQ(summary.at("tensors"), 2);
  CHECK_EQ(summary.at("differing_tensors"), 1);
  CHECK_EQ(summary.at("files").size(), 2);
}

TEST_CASE("other tensors, shapes and dtypes") {
  const Tool tool;
  CheckDifference(CompareWith(tool, {{"weights", kWeights}}),
                  "bias: only in the first file\n"
                  "1 of 2 tensors differ, 0 of 1 metadata keys\n");
  CheckDifference(
      CompareWith(tool, {{"weights", kWeights}, {"bias", kBias}, {"m", kBias}}),
      "m: only in the second file\n"
      "1 of 3 tensors differ, 0 of 1 metadata keys\n");
  CheckDifference(
      CompareWith(tool,
                  {{"weights", kWeights.Reshaped({3, 2})}, {"bias", kBias}}),
      "weights: float32[2,3] in the first file, float32[3,2] in the second\n"
      "1 of 2 tensors differ, 0 of 1 metadata keys\n");
  CheckDifference(
      CompareWith(
          tool, {{"weights", kWeights}, {"bias", kBias.Cast(DType::kFloat16)}}),
      "bias: float32[2] in the first file, float16[2] in the second\n"
      "1 of 2 tensors differ, 0 of 1 metadata keys\n");
}

TEST_CASE("other metadata") {
  const Tool tool;
  const Tensors tensors = {{"weights", kWeights}, {"bias", kBias}};
  CheckDifference(CompareWith(tool, tensors, {{"epoch", "4"}}),
                  "metadata epoch: 3 in the first file, 4 in the second\n"
                  "0 of 2 tensors differ, 1 of 1 metadata keys\n");
  const Outcome json = CompareWith(tool, tensors, {{"epoch", "4"}}, "--json");
  CHECK(json.out.starts_with(R"({"metadata":"epoch","first":"3","second":"4"})"
                             "\n"));
  CheckDifference(CompareWith(tool, tensors, {}),
                  "metadata epoch: 3 only in the first file\n"
                  "0 of 2 tensors differ, 1 of 1 metadata keys\n");
  // Of long values the part that differs is shown.
  const std::string common(500, 'x');
  const Outcome outcome = tool.Inspect(
      tool.Write("a.safetensors", {}, {{"k", common + "one"}}) + " " +
      tool.Write("b.safetensors", {}, {{"k", common + "two"}}));
  CHECK(Contains(outcome.out, "xone in the first file, ..."));
  CHECK(Contains(outcome.out, "xtwo in the second"));
  CHECK_FALSE(Has(outcome.out, common));
}

// Of two files with one tensor each.
Outcome CompareOne(const Tool& tool, const Tensor& first, const Tensor& second,
                   const std::string& flags = "") {
  const std::string a = tool.Write("a.safetensors", {{"t", first}});
  const std::string b = tool.Write("b.safetensors", {{"t", second}});
  return tool.Inspect(flags + " " + a + " " + b);
}

TEST_CASE("NaN equals NaN, and 0 equals -0") {
  const Tool tool;
  const auto other_nan = std::bit_cast<float>(0x7fc00123u);
  CHECK_EQ(CompareOne(tool, Tensor::Array<float>({3}, {kNan, 1, 0}),
                      Tensor::Array<float>({3}, {other_nan, 1, -0.0f}))
               .exit_code,
           0);
  const Tensor nan = Tensor::Array<float>({3}, {1, kNan, 9});
  const Tensor number = Tensor::Array<float>({3}, {1, 2, 8});
  const Outcome outcome = CompareOne(tool, nan, number);
  CHECK_EQ(outcome.exit_code, 1);
  CHECK(
      Contains(outcome.out, "t: 2 of 3 elements differ, most by inf at [1]\n"));
  const std::string json = CompareOne(tool, nan, number, "--json").out;
  const Json line = Json::parse(json.substr(0, json.find('\n')));
  CHECK_EQ(line.at("at"), Json::array({1}));
  CHECK_FALSE(line.contains("largest"));
}

TEST_CASE("differences of integers do not overflow") {
  const Tool tool;
  using Limits = std::numeric_limits<int64_t>;
  constexpr int64_t kLarge = int64_t{1} << 60;
  CHECK(Contains(CompareOne(tool, Tensor::Scalar<int64_t>(kLarge),
                            Tensor::Scalar<int64_t>(kLarge + 1))
                     .out,
                 "t: 1 of 1 elements differ, most by 1 at []\n"));
  CHECK(Contains(CompareOne(tool, Tensor::Scalar<int64_t>(Limits::min()),
                            Tensor::Scalar<int64_t>(Limits::max()))
                     .out,
                 "most by 1.8447e+19 at []\n"));
}

TEST_CASE("headers compared alone") {
  const Tool tool;
  const std::string limit = "; values were not compared\n";
  const Outcome same =
      CompareOne(tool, kBias, Tensor::Zeros(DType::kFloat32, {2}), "--quick");
  CHECK_EQ(same.exit_code, 0);
  CHECK_EQ(same.out, "equal: all 1 tensors and the metadata" + limit);
  CheckDifference(
      CompareOne(tool, kBias, kWeights, "--quick"),
      "t: float32[2] in the first file, float32[2,3] in the second\n"
      "1 of 1 tensors differ, 0 of 0 metadata keys" +
          limit);
}

TEST_CASE("damaged files are not compared") {
  const Tool tool;
  const std::string bytes = BytesOf(SmallCheckpoint(7));
  const std::string whole = tool.Write("whole.safetensors", bytes);
  const std::string bad =
      tool.Write("bad.safetensors", Flipped(bytes, 8 * bytes.size() - 1));
  for (const auto& [first, second] :
       {std::pair(whole, bad), std::pair(bad, whole)}) {
    const Outcome outcome = tool.Inspect(fmt::format("{} {}", first, second));
    CheckError(outcome, "bad.safetensors", 2);  // 1 is a difference
    CHECK_EQ(outcome.out, "");
  }
  CHECK_EQ(tool.Inspect("--quick " + whole + " " + bad).exit_code, 0);
}

}  // namespace
}  // namespace sluice
