// docs/guide.md, followed to the letter: its commands run in their order and
// print what it shows, its programs are compiled, what it names is there.
//
//   ```sh              run as one script in a folder that keeps the files of
//                      those before, in place of the data small ones of ours
//   ```text            right behind one: each line is printed by it, where any
//                      number stands for any other and "..." for anything
//   ```cpp             is a file tests/apps/guide_*.cc
//   ```console         is not run
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sluice/sluice.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "io/images/png.h"
#include "tests/places.h"
#include "tests/support/idx_folder.h"
#include "tests/support/program.h"
#include "tests/support/pth_bytes.h"

#if SLUICE_HAVE_PNG

namespace guide {

// The README's functions, with the guide's program in place of its main.
namespace digits {
#define main ReadmeProgram  // NOLINT: programs have a main of their own
#include "tests/apps/readme_mnist.cc"  // NOLINT
#undef main
#define main Program                   // NOLINT
#include "tests/apps/guide_digits.cc"  // NOLINT
#undef main
}  // namespace digits

namespace classify {
#define main Program                     // NOLINT
#include "tests/apps/guide_classify.cc"  // NOLINT
#undef main
}  // namespace classify

}  // namespace guide

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Outcome;
using testing::TextOf;

// --- The guide ---------------------------------------------------------------

struct Block {
  std::string language;
  std::string text;
  bool right_behind = false;  // the block before
};

struct Guide {
  std::vector<Block> blocks;
  std::string prose;  // the lines beside them
};

Guide ReadGuide() {
  std::istringstream lines(TextOf(SLUICE_SOURCE_DIR "/docs/guide.md"));
  Guide guide;
  bool inside = false, right_behind = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      if (!inside) guide.blocks.push_back({line.substr(3), "", right_behind});
      inside = !inside;
      right_behind = true;
    } else if (inside) {
      guide.blocks.back().text += line + "\n";
    } else {
      guide.prose += line + "\n";
      right_behind = false;
    }
  }
  REQUIRE(!inside);
  return guide;
}

// Lines that are like this one.
std::regex Like(const std::string& shown) {
  constexpr char kNumber[] = "-?[0-9]([0-9.,]|e[-+])*";
  const std::regex part(std::string(kNumber) + "|\\.\\.\\.| +|.");
  std::string like = " *";
  const std::sregex_iterator end;
  for (std::sregex_iterator i(shown.begin(), shown.end(), part); i != end;
       ++i) {
    const std::string text = i->str();
    const char first = text[0];
    if (text == "...") {
      like += ".*";
    } else if (first == ' ') {
      like += " *";
    } else if (text.find_first_of("0123456789") != std::string::npos) {
      like += kNumber;
    } else {
      like += std::ispunct(first) ? "\\" + text : text;
    }
  }
  return std::regex(like + " *");
}

bool HasLineLike(const std::string& output, const std::string& shown) {
  const std::regex like = Like(shown);
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, like)) return true;
  }
  return false;
}

TEST_CASE("a line of the guide stands for those with other numbers") {
  CHECK(
      HasLineLike("a\nstep 1,200: loss 2e-05, 7s\n", "step 20: loss 0.3, 0s"));
  CHECK(HasLineLike("max -0.5    mean 2", "  max 1.25 mean -3"));
  CHECK(HasLineLike("wrote (a+b)", "wrote ..."));
  CHECK_FALSE(HasLineLike("step 20: loss 0.3, no more", "step 20: loss 0.3"));
  CHECK_FALSE(HasLineLike("step x: loss 0.3", "step 20: loss 0.3"));
}

// --- What the guide finds ----------------------------------------------------

void WritePng(const std::string& path, const Tensor& picture) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << EncodePng(picture).ValueOrThrow();
}

// Of a colour for each class.
void WritePhotos(const std::string& folder, int count) {
  for (const int number : {0, 1}) {
    for (int i = 0; i < count; ++i) {
      Tensor picture(DType::kUInt8, {40 + i, 60, 3});
      for (int64_t k = 0; k < picture.elements(); ++k) {
        picture.data<uint8_t>()[k] = static_cast<uint8_t>(
            (k % 3 == number ? 200 : 50) + (k * 7 + i) % 32);
      }
      WritePng(fmt::format("{}/{}/{}.png", folder, number ? "dog" : "bird", i),
               picture);
    }
  }
}

void WriteCifar(const std::string& folder) {
  fs::create_directories(folder);
  for (const char* part : {"data_batch_1", "data_batch_2", "data_batch_3",
                           "data_batch_4", "data_batch_5", "test_batch"}) {
    std::ofstream file(fmt::format("{}/{}.bin", folder, part),
                       std::ios::binary);
    for (char label = 0; label < 8; ++label) {
      file << label << std::string(3072, static_cast<char>(label * 30));
    }
  }
}

// As torchvision publishes them, but for the numbers.
void WriteResNet18(const std::string& path) {
  Graph graph;
  ResNet(Scope(graph), "resnet18",
         graph.Placeholder("image", DType::kFloat32, {1, 224, 224, 3}));
  const WeightLayout layout = PyTorchLayout();
  std::string pickle = "\x80\x02}";
  std::map<std::string, std::string> storages;
  for (const Output& variable : graph.Variables()) {
    testing::PickledTensor tensor;
    tensor.key = std::to_string(storages.size());
    tensor.elements = variable.shape().elements();
    const std::vector<int> order = layout.order(variable);
    const auto rank = static_cast<size_t>(variable.shape().rank());
    tensor.sizes.assign(rank, 0);
    for (size_t i = 0; i < rank; ++i) {
      const size_t at = order.empty() ? i : static_cast<size_t>(order[i]);
      tensor.sizes[at] = variable.shape()[static_cast<int>(i)];
    }
    tensor.strides.assign(rank, 1);
    for (size_t i = rank; i-- > 1;) {
      tensor.strides[i - 1] = tensor.strides[i] * tensor.sizes[i];
    }
    std::vector<float> values(static_cast<size_t>(tensor.elements), 1);
    if (rank > 1) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i * 7919 % 101) / 2000 - 0.025F;
      }
    }
    pickle += testing::PickledText(layout.name(variable)) + tensor.Text() + "s";
    storages[tensor.key] =
        std::string(reinterpret_cast<const char*>(values.data()),
                    values.size() * sizeof(float));
  }
  std::ofstream(path, std::ios::binary)
      << testing::PthFile(pickle + ".", storages);
}

// Runs a program of the guide's: one of ours that was started for it.
void WriteProgram(const std::string& path, const std::string& name) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << fmt::format(
      "#!/bin/sh\n"
      "GUIDE_PROGRAM={} GUIDE_ARGUMENTS=$(printf '%s\\n' \"$@\") exec '{}' "
      "--no-version --no-intro --no-skip "
      "--test-case='a program of the guide in a process of its own'\n",
      name, fs::read_symlink("/proc/self/exe").string());
  fs::permissions(path, fs::perms::owner_all);
}

TEST_CASE("a program of the guide in a process of its own" * doctest::skip()) {
  const char* program = std::getenv("GUIDE_PROGRAM");
  const char* given = std::getenv("GUIDE_ARGUMENTS");
  if (program == nullptr || given == nullptr) return;
  std::vector<std::string> words = {program};
  std::istringstream lines(given);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::exit(words[0] == "digits"
                ? guide::digits::Program()
                : guide::classify::Program(static_cast<int>(arguments.size()),
                                           arguments.data()));
}

// --- Following it ------------------------------------------------------------

TEST_CASE("the guide's commands run and print what it shows") {
  const testing::TemporaryFolder folder;
  const testing::IdxFolder mnist(1000, 230);
  fs::create_directories(folder / "data");
  fs::create_directory_symlink(mnist.path(), folder / "data/mnist");
  const Tensor digit = DrawDigits(1, 3).images;
  WritePng(folder / "data/seven.png",
           digit.Reshaped({kDigitSize, kDigitSize, 1}));
  WriteCifar(folder / "data/cifar10");
  WritePhotos(folder / "data/photos/train", 6);
  WritePhotos(folder / "data/photos/val", 2);
  WritePhotos(folder / "data/pets", 8);
  std::ofstream(folder / "data/pets/bird/broken.jpg") << "no picture";
  fs::copy(folder / "data/photos/val/dog/0.png", folder / "new.jpg");
  WriteResNet18(folder / "data/resnet18.pth");
  std::ofstream names(folder / "data/names");
  for (int i = 0; i < 1000; ++i) names << "class " << i << "\n";
  names.close();
  WriteProgram(folder / "build/digits", "digits");
  WriteProgram(folder / "build/classify", "classify");

  int scripts = 0, shown = 0;
  std::string script, output;
  for (const Block& block : ReadGuide().blocks) {
    if (block.language == "sh") {
      script = block.text;
      const Outcome outcome = testing::RunProgram(
          "/bin/sh", {"-ec", "cd \"$0\"\nPATH=\"$1:$PATH\"\n" + script,
                      folder.path(), SLUICE_BIN_DIR});
      output = outcome.out + outcome.err;
      CAPTURE(script);
      CAPTURE(output);
      REQUIRE(outcome.code == 0);
      ++scripts;
    } else if (block.language == "text" && block.right_behind) {
      CAPTURE(script);
      CAPTURE(output);
      std::istringstream lines(block.text);
      for (std::string line; std::getline(lines, line); ++shown) {
        CAPTURE(line);
        CHECK(HasLineLike(output, line));
      }
    }
  }
  CHECK(scripts > 10);
  CHECK(shown > 20);
}

TEST_CASE("the guide's C++ is that of the programs here") {
  const std::string programs =
      TextOf(SLUICE_SOURCE_DIR "/tests/apps/guide_digits.cc") + "\n" +
      TextOf(SLUICE_SOURCE_DIR "/tests/apps/guide_classify.cc");
  int listings = 0;
  for (const Block& block : ReadGuide().blocks) {
    if (block.language != "cpp") continue;
    CAPTURE(block.text);
    CHECK(programs.find(block.text) != std::string::npos);
    ++listings;
  }
  CHECK(listings == 2);
}

// What the first group of a pattern is in a text, everywhere.
std::vector<std::string> Found(const std::string& text, const char* pattern) {
  std::vector<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end;
       ++i) {
    found.push_back((*i)[1]);
  }
  return found;
}

// As links name them: "## Large tables" is "large-tables".
std::vector<std::string> Headings(const std::string& text) {
  std::vector<std::string> headings = Found(text, "(?:^|\n)#+ ([^\n]+)");
  for (std::string& heading : headings) {
    for (char& c : heading) {
      c = c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<int>(c)));
    }
  }
  return headings;
}

TEST_CASE("what the guide names is there") {
  const std::string prose = ReadGuide().prose;
  for (const std::string& link : Found(prose, "\\]\\(([^):]+)\\)")) {
    CAPTURE(link);
    const size_t hash = link.find('#');
    const std::string file = SLUICE_SOURCE_DIR "/docs/" + link.substr(0, hash);
    CHECK(fs::exists(file));
    if (hash == std::string::npos) continue;
    const std::vector<std::string> headings = Headings(testing::TextOf(file));
    CHECK(std::find(headings.begin(), headings.end(), link.substr(hash + 1)) !=
          headings.end());
  }
  for (const std::string& file : Found(prose, "`([a-z0-9_/]+\\.(h|cc))`")) {
    CAPTURE(file);
    CHECK(fs::exists(SLUICE_SOURCE_DIR "/" + file));
  }

  std::string help;
  for (const char* program : {"mnist", "resnet50"}) {
    for (const char* command :
         {"train", "eval", "predict", "export", "bench"}) {
      help += testing::RunProgram(fmt::format("{}/{}", SLUICE_BIN_DIR, program),
                                  {command, "--help"})
                  .out;
    }
  }
  for (const char* command : {"make", "copy", "bench", "check"}) {
    help += testing::RunProgram(SLUICE_BIN_DIR "/sluice",
                                {"data", command, "--help"})
                .out;
  }
  help += testing::RunProgram(SLUICE_BIN_DIR "/sluicerun", {"--help"}).out;
  for (const std::string& flag : Found(prose, "(--[a-z][a-z-]*)")) {
    CAPTURE(flag);
    CHECK(std::regex_search(help, std::regex("\n +" + flag + "[ {]")));
  }

  // Names of the library, in the last column of the table.
  std::string headers;
  for (const char* folder : {"graph", "io", "models"}) {
    for (const auto& file : fs::recursive_directory_iterator(
             fmt::format("{}/{}", SLUICE_SOURCE_DIR, folder))) {
      if (file.path().extension() == ".h") headers += TextOf(file.path());
    }
  }
  int rows = 0;
  std::istringstream lines(prose);
  for (std::string line; std::getline(lines, line);) {
    const auto cells = Found(line, "^\\|.*\\|.*\\| (.*) \\|$");
    if (cells.empty()) continue;
    for (const std::string& name :
         Found(cells[0], "`(?:\\w+::)?([A-Z][A-Za-z0-9]+)[`(]")) {
      CAPTURE(name);
      CHECK(std::regex_search(headers, std::regex("\\b" + name + "\\b")));
      ++rows;
    }
  }
  CHECK(rows > 20);
}

}  // namespace
}  // namespace sluice

#endif
