// eval --ten-crop of the resnet50 program beside predicting for each crop, cut
// out here, and averaging what that says.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "tests/support/last_object.h"
#include "tests/support/random.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::CheckResNet50Error;
using testing::Contains;
using testing::LastObject;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::TextOf;

constexpr int kSide = 32;  // of resnet20's crops, and the shorter side before
const std::vector<std::string> kClasses = {"ant", "bee", "cat"};

// Noise, so that the crops of a picture are taken for different classes.
Tensor RandomImage(testing::Random& random, int64_t height, int64_t width) {
  Tensor image(DType::kUInt8, {height, width, 3});
  int64_t shade = 128;
  for (uint8_t& value : image.values<uint8_t>()) {
    shade = std::clamp<int64_t>(shade + random.Between(-60, 60), 0, 255);
    value = static_cast<uint8_t>(shade);
  }
  return image;
}

void Write(const std::string& path, const Tensor& image) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << *EncodePng(image);
}

// Three classes of 6 pictures in `train`, of 5 in `val`, wide and high, and a
// training that has learnt a little.
struct Trained {
  TemporaryFolder folder;
  std::string data = folder / "data", log = folder / "log";
  std::map<std::string, Tensor> val;  // by path from the folder on

  Trained() {
    testing::Random random(1);
    for (const std::string& name : kClasses) {
      for (int i = 0; i < 6; ++i) {
        Write(fmt::format("{}/train/{}/{}.png", data, name, i),
              RandomImage(random, 40, 40));
      }
      for (int i = 0; i < 5; ++i) {
        const int64_t longer = random.Between(33, 90);
        const std::string path = fmt::format("{}/{}.png", name, i);
        val[path] = i % 2 == 0 ? RandomImage(random, longer, 32)
                               : RandomImage(random, 41, longer + 41);
        Write(data + "/val/" + path, val[path]);
      }
    }
    const Outcome outcome = RunResNet50(
        {"train", "--data", data, "--model", "resnet20", "--steps", "12",
         "--batch-size", "9", "--log-dir", log, "--threads", "1"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
  Outcome Eval(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"eval", "--log-dir", log, "--threads", "1", "--ten-crop"});
    return RunResNet50(more);
  }
};

std::vector<Tensor> CropsOf(const Tensor& image) {
  const int64_t rows = image.shape()[0], columns = image.shape()[1];
  const int64_t shorter = std::min(rows, columns);
  const Tensor whole =
      Resize(image, kSide * rows / shorter, kSide * columns / shorter);
  std::vector<Tensor> crops;
  for (const Tensor& from : {whole, FlipHorizontally(whole)}) {
    const int64_t down = from.shape()[0] - kSide;
    const int64_t right = from.shape()[1] - kSide;
    const auto half = [](int64_t n) {  // of a half to the even number
      return static_cast<int64_t>(std::nearbyint(static_cast<double>(n) / 2));
    };
    for (const auto& [top, left] : {std::pair<int64_t, int64_t>(0, 0),
                                    {0, right},
                                    {down, 0},
                                    {down, right},
                                    {half(down), half(right)}}) {
      crops.push_back(Crop(from, top, left, kSide, kSide));
    }
  }
  return crops;
}

using Probabilities = std::map<std::string, double>;  // by class

// Of each picture in `val`, from predictions for files of its crops.
std::map<std::string, Probabilities> Averaged(const Trained& trained) {
  const std::string folder = trained.folder / "crops";
  std::vector<std::string> arguments = {"predict", "--log-dir", trained.log,
                                        "--json"};
  std::vector<std::string> pictures;  // of each crop
  for (const auto& [path, image] : trained.val) {
    for (const Tensor& crop : CropsOf(image)) {
      arguments.push_back(fmt::format("{}/{:04}.png", folder, pictures.size()));
      Write(arguments.back(), crop);
      pictures.push_back(path);
    }
  }
  const Outcome outcome = RunResNet50(arguments);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::map<std::string, Probabilities> averaged;
  std::istringstream lines(outcome.out);
  size_t next = 0;
  for (std::string line; std::getline(lines, line); ++next) {
    const Json object = Json::parse(line);
    for (const Json& entry : object["top"]) {
      averaged[pictures.at(next)][entry["name"]] +=
          entry["probability"].get<double>() / 10;
    }
  }
  REQUIRE(next == pictures.size());
  return averaged;
}

struct Figures {
  double accuracy = 0, loss = 0;
  std::map<std::string, int> right;  // by class
};
Figures FiguresOf(const std::map<std::string, Probabilities>& averaged) {
  Figures figures;
  for (const auto& [path, probabilities] : averaged) {
    const std::string label = path.substr(0, path.find('/'));
    const auto best = std::max_element(
        probabilities.begin(), probabilities.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    figures.right[label] += best->first == label ? 1 : 0;
    figures.accuracy += best->first == label ? 1 : 0;
    figures.loss -= std::log(probabilities.at(label));
  }
  const auto n = static_cast<double>(averaged.size());
  figures.accuracy /= n;
  figures.loss /= n;
  return figures;
}

// Of ": test loss 1.0234, accuracy".
double LossIn(const std::string& text) {
  const std::string before = " loss ";
  return std::stod(text.substr(text.find(before) + before.size()));
}

TEST_CASE("probabilities of ten crops are averaged, batches of any size") {
  const Trained trained;
  const Figures want = FiguresOf(Averaged(trained));
  // Or the test would tell little.
  CHECK(want.accuracy > 0);
  CHECK(want.accuracy < 1);
  const Outcome without = RunResNet50({"eval", "--log-dir", trained.log});
  CHECK(std::abs(LossIn(without.out) - want.loss) > 0.002);
  // 15 pictures: the last batch is whole, smaller, of one, the only one.
  for (const char* size : {"1", "3", "4", "7", "100"}) {
    CAPTURE(size);
    const Outcome text = trained.Eval({"--batch-size", size});
    REQUIRE_MESSAGE(text.code == 0, text.err);
    CHECK(Contains(text.out, "(15 examples)"));
    CHECK(LossIn(text.out) == doctest::Approx(want.loss).epsilon(0.001));
    const Outcome json = trained.Eval({"--batch-size", size, "--json"});
    CHECK(LastObject(json.out)["test_accuracy"].get<double>() ==
          doctest::Approx(want.accuracy));
  }
}

TEST_CASE("the report is of the averaged probabilities, bad pictures aside") {
  const Trained trained;
  const Figures want = FiguresOf(Averaged(trained));
  const std::string bad = trained.data + "/val/bee/2a.png";
  std::ofstream(bad) << "no picture";
  CHECK(trained.Eval({}).code == 1);
  const std::string page = trained.folder / "report.html";
  const Outcome outcome = trained.Eval(
      {"--skip-bad", "1", "--report", page, "--batch-size", "4", "--json"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const Json result = LastObject(outcome.out);
  CHECK(result["bad_examples"] == 1);
  CHECK(result["test_accuracy"].get<double>() ==
        doctest::Approx(want.accuracy));
  const std::string html = TextOf(page);
  CHECK(html.find("15 examples") != std::string::npos);
  for (const std::string& name : kClasses) {
    // The table of classes: how many examples, and the recall.
    const std::string row = fmt::format("</th><td>5</td><td>{:.1f}\u00A0%</td>",
                                        100.0 * want.right.at(name) / 5);
    const size_t begin = html.find("<tr><th scope=\"row\">" + name);
    CAPTURE(row);
    REQUIRE(begin != std::string::npos);
    CHECK(html.find(row, begin) < html.find("</tr>", begin));
  }
  // The worst mistakes are shown.
  CHECK(html.find("data:image/png;base64,") != std::string::npos);
}

TEST_CASE("--ten-crop is for evaluating pictures of files") {
  const TemporaryFolder folder;
  testing::WriteClasses(folder / "data", {"ant", "bee"}, 4);
  const std::string log = folder / "log";
  const auto run = [&](const std::string& command,
                       const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        command, "--log-dir", log, "--ten-crop", "--model", "resnet20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunResNet50(arguments);
  };
  const std::vector<std::string> data = {"--data", folder / "data"};
  CheckResNet50Error(run("train", data), 1, "--ten-crop is for eval");
  CHECK_FALSE(fs::exists(log + "/run.json"));
  CheckResNet50Error(run("bench", data), 1, "--ten-crop is for eval");
  CheckResNet50Error(run("train", {}), 2,
                     "--ten-crop is for --data with a folder");
}

}  // namespace
}  // namespace sluice
#endif
