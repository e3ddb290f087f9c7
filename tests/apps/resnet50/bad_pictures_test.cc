// Pictures that are broken in many ways, one among many good ones: what
// resnet50 makes of a folder that somebody has collected.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/last_object.h"
#include "tests/support/resnet50_program.h"

#if SLUICE_HAVE_PNG

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::Contains;
using testing::LastObject;
using testing::Outcome;
using testing::RunResNet50;
using testing::TemporaryFolder;
using testing::TextOf;
using testing::WritePicture;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Ways to break a picture: each makes a file, or what is none, at a path.
using Break = std::function<void(const std::string& path)>;
std::vector<Break> Breaks(const std::string& good) {
  const auto cut = [good](size_t n) {
    return [=](const std::string& path) { Write(path, good.substr(0, n)); };
  };
  const auto flipped = [good](size_t at) {
    return [=](const std::string& path) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
      Write(path, bytes);
    };
  };
  const auto text = [](const std::string& bytes) {
    return [=](const std::string& path) { Write(path, bytes); };
  };
  const std::string jpeg = "\xff\xd8\xff\xe0";
  return {
      text(""),
      text("x"),
      text("<html>404</html>"),
      text(std::string(5000, '\0')),
      text("GIF89a" + std::string(100, 'a')),
      text("BM" + std::string(100, 'a')),
      text(jpeg),
      text(jpeg + std::string(3000, 'j')),
      cut(8),
      cut(20),
      cut(33),
      cut(good.size() / 2),
      cut(good.size() - 20),
      flipped(3),                // signature
      flipped(18),               // width, so that its checksum is wrong
      flipped(good.size() / 2),  // pixels
      flipped(12),               // name of the first chunk
      [](const std::string& path) { fs::create_directory(path); },
      [](const std::string& path) { fs::create_symlink("nowhere", path); },
      [](const std::string& path) { REQUIRE(mkfifo(path.c_str(), 0600) == 0); },
  };
}

// Pictures of 12 x 12 pixels in `classes` folders.
void WriteClasses(const std::string& folder, int classes, int each) {
  for (int c = 0; c < classes; ++c) {
    fs::create_directories(folder + "/" + std::to_string(c));
    for (int i = 0; i < each; ++i) {
      WritePicture(fmt::format("{}/{}/{:03}.png", folder, c, i), 12 + c, 12);
    }
  }
}

std::vector<std::string> On(const std::string& command, const std::string& data,
                            const std::string& log,
                            const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      command,     "--data", data,           "--model", "resnet20",
      "--log-dir", log,      "--batch-size", "16",      "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("of 500 files 20 are broken in 20 ways: the others are classified") {
  TemporaryFolder folder;
  const std::string data = folder / "data";
  WriteClasses(data, 2, 8);
  REQUIRE(
      RunResNet50(On("train", data, folder / "log", {"--steps", "1"})).code ==
      0);

  fs::create_directory(folder / "files");
  WritePicture(folder / "good.png", 40, 30);
  const std::vector<Break> breaks = Breaks(TextOf(folder / "good.png"));
  REQUIRE(breaks.size() == 20);
  std::vector<std::string> files;
  std::set<std::string> broken;
  // The first, the last, some beside each other, across batches of 16.
  const std::set<size_t> where = {0,   1,   15,  16,  17,  99,  100,
                                  150, 200, 201, 239, 240, 300, 301,
                                  302, 400, 431, 432, 498, 499};
  for (size_t i = 0; i < 500; ++i) {
    const std::string path = fmt::format("{}/{:03}.png", folder / "files", i);
    files.push_back(path);
    if (where.contains(i)) {
      breaks[broken.size()](path);
      broken.insert(path);
    } else {
      fs::copy_file(folder / "good.png", path);
    }
  }
  REQUIRE(broken.size() == breaks.size());
  const Outcome outcome =
      RunResNet50(On("predict", data, folder / "log", files));
  CHECK(outcome.code == 1);
  std::istringstream lines(outcome.out);
  size_t n = 0;
  Json first;
  for (std::string line; std::getline(lines, line); ++n) {
    const Json event = Json::parse(line);
    REQUIRE(n < files.size());
    CAPTURE(line);
    CHECK(event["file"] == files[n]);
    CHECK(event.contains("error") == broken.contains(files[n]));
    if (event.contains("error")) continue;
    // The same picture everywhere has the same classes.
    if (first.is_null()) first = event["top"];
    REQUIRE(event["top"].size() == first.size());
    const double probability = event["top"][0]["probability"];
    CHECK(probability ==
          doctest::Approx(first[0]["probability"].get<double>()).epsilon(1e-4));
  }
  CHECK(n == files.size());
  CHECK(Contains(outcome.err, "20 that could not be read"));

  // All of them broken.
  const std::vector<std::string> bad(broken.begin(), broken.end());
  const Outcome none = RunResNet50(On("predict", data, folder / "log", bad));
  CHECK(none.code == 1);
  CHECK(testing::Lines(none.out) == 20);
}

TEST_CASE("training and evaluation end at a bad picture, or pass over some") {
  TemporaryFolder folder;
  const std::string data = folder / "data", log = folder / "log";
  WriteClasses(data + "/train", 2, 20);
  WriteClasses(data + "/val", 2, 9);
  Write(data + "/train/0/broken.png", "no picture");
  Write(data + "/train/1/._000.png", "notes of macOS");
  Write(data + "/val/1/broken.png", "no picture either");

  const Outcome ends = RunResNet50(On("train", data, log, {"--epochs", "1"}));
  CHECK(ends.code == 1);
  CHECK(Contains(ends.err, "broken.png"));
  const Outcome one =
      RunResNet50(On("train", data, log, {"--epochs", "4", "--skip-bad", "1"}));
  CHECK(one.code == 1);
  CHECK(Contains(one.err, "1 bad ones were passed over before it"));

  // In pieces, so that a resume is behind some that were passed over.
  for (const char* steps : {"2", "5", "9"}) {
    const Outcome trained = RunResNet50(
        On("train", data, log, {"--steps", steps, "--skip-bad", "2"}));
    CHECK(trained.code == 0);
    const Json result = LastObject(trained.out);
    CHECK(result["evaluated_on"] == "test");
    CHECK(Contains(trained.err, "val/1/broken.png"));
  }
  // Nothing is left to train, and those of before are the training's.
  const Outcome done =
      RunResNet50(On("train", data, log, {"--steps", "9", "--skip-bad", "2"}));
  CHECK(done.code == 0);
  CHECK(LastObject(done.out)["bad_examples"] == 2);
  CHECK(Contains(done.err, "train/0/broken.png"));
  const Outcome eval = RunResNet50(On("eval", data, log, {"--skip-bad", "1"}));
  CHECK(eval.code == 0);
  const Json result = LastObject(eval.out);
  CHECK(result["bad_examples"] == 1);
  CHECK(result["steps"] == 9);
  CHECK(RunResNet50(On("eval", data, log, {})).code == 1);
  const Outcome followed =
      RunResNet50(On("eval", data, log, {"--skip-bad", "1", "--follow"}));
  CHECK(followed.code == 0);
  CHECK(Contains(followed.err, "val/1/broken.png"));
}

// What it lists as passed over.
std::vector<std::string> Listed(const std::string& err) {
  std::vector<std::string> listed;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) listed.push_back(line);
  }
  return listed;
}

Outcome RunResNet50In(const std::string& folder,
                      const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"-c", "cd \"$1\"; shift; exec \"$@\"", "sh",
                                    folder, SLUICE_BIN_DIR "/resnet50"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return testing::RunProgram("/bin/sh", words);
}

TEST_CASE("a training that goes on knows its bad pictures by any path") {
  TemporaryFolder folder;
  const std::string data = folder / "pets", elsewhere = folder / "elsewhere";
  WriteClasses(data + "/train", 2, 20);
  WriteClasses(data + "/val", 2, 9);
  fs::create_directory(elsewhere);
  Write(data + "/train/0/broken.png", "no picture");
  fs::create_symlink("nowhere", data + "/train/1/gone.png");
  Write(data + "/val/1/broken.png", "no picture either");

  for (const std::string limit : {"3", "2"}) {
    CAPTURE(limit);
    const auto arguments = [&](const std::string& log,
                               const std::vector<std::string>& more) {
      std::vector<std::string> words = {"train",
                                        "--log-dir",
                                        folder / (log + limit),
                                        "--json",
                                        "--model",
                                        "resnet20",
                                        "--steps",
                                        "12",
                                        "--batch-size",
                                        "10",
                                        "--evaluate-every",
                                        "1",
                                        "--skip-bad",
                                        limit};
      words.insert(words.end(), more.begin(), more.end());
      return words;
    };
    const Outcome whole = RunResNet50(arguments("whole", {"--data", data}));
    CHECK(whole.code == (limit[0] == '3' ? 0 : 1));
    CHECK(Listed(whole.err).size() == static_cast<size_t>(limit[0] - '0'));
    // First as it is called there, then as the record has it, and from where
    // it is called otherwise.
    Outcome part = RunResNet50In(
        folder.path(),
        arguments("parts", {"--data", "pets", "--max-steps", "3"}));
    CAPTURE(part.err);
    CHECK(!Listed(part.err).empty());
    part = RunResNet50In(elsewhere, arguments("parts", {"--max-steps", "6"}));
    part = RunResNet50In(elsewhere, arguments("parts", {"--data", "../pets/",
                                                        "--max-steps", "9"}));
    part = RunResNet50(arguments("parts", {"--data", data}));
    CHECK(part.code == whole.code);
    CHECK(Listed(part.err) == Listed(whole.err));
  }
}

}  // namespace
}  // namespace sluice

#endif
