// `sluice report` from outside: the folders of trainings in, a page out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/train/hooks/scalar_log.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/mnist_program.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::CheckError;
using testing::Contains;
using testing::Lines;
using testing::Outcome;
using testing::TextOf;

namespace fs = std::filesystem;

constexpr char kRecord[] = R"({"format": "sluice.run", "version": 1,
  "program": "mnist", "sluice": "0.1.0", "model": "cnn",
  "flags": {"seed": ")";

// Trainings in a folder, and the tool run beside them.
class Trainings {
 public:
  // With two curves of the loss and one of the learning rate.
  std::string Add(const std::string& name) const {
    std::string log_dir = folder_ / name;
    const auto log = ScalarLog::Open(log_dir, 0, true).ValueOrThrow();
    for (int64_t step = 1; step <= 3; ++step) {
      const auto value = static_cast<double>(step);
      for (const ScalarRow& row :
           {ScalarRow{value, step, "train", "loss", 1 / value},
            ScalarRow{value, step, "eval", "loss", 2 / value},
            ScalarRow{value, step, "train", "learning_rate", 0.1}}) {
        ThrowIfError(log->Add(row));
      }
    }
    ThrowIfError(log->Flush());
    return log_dir;
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  Outcome Report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "report");
    arguments.insert(arguments.end(), {"--output", output()});
    return testing::RunProgram(SLUICE_BIN_DIR "/sluice", arguments);
  }
  // Requires that it works; what is behind the name of the page.
  std::string Counted(const std::vector<std::string>& arguments) const {
    const Outcome outcome = Report(arguments);
    CHECK(outcome.code == 0);
    CHECK(outcome.err == "");
    const std::string begin = "wrote " + output() + ": ";
    REQUIRE(outcome.out.starts_with(begin));
    return outcome.out.substr(begin.size());
  }
  std::string Page() const { return TextOf(output()); }
  std::string output() const { return folder_ / "out.html"; }
  std::string path() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

// Whether it is the text of an element.
bool Shows(const std::string& page, const std::string& text) {
  return page.find(">" + text + "<") != std::string::npos;
}

TEST_CASE("one training") {
  const Trainings trainings;
  const std::string log_dir = trainings.Add("log");
  CHECK(trainings.Counted({log_dir}) == "1 run, 3 curves\n");
  const std::string page = trainings.Page();
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(Shows(page, log_dir));
  CHECK(Shows(page, "train"));
  CHECK(Shows(page, "0.66667 at step 3"));
  CHECK(Shows(page, "no run.json"));

  const Outcome usage =
      testing::RunProgram(SLUICE_BIN_DIR "/sluice", {"report", "--help"});
  CHECK(usage.code == 0);
  CHECK(Contains(usage.out, "report.html"));
}

TEST_CASE("a page without a name takes the place of no file") {
  const Trainings trainings;
  const std::string log_dir = trainings.Add("log");
  trainings.Write("notes", "mine");
  const std::string notes = trainings.path() + "/notes";
  const Outcome outcome = testing::RunProgram(
      SLUICE_BIN_DIR "/sluice", {"report", log_dir, "--output=", notes});
  CHECK(outcome.code != 0);
  CHECK(TextOf(notes) == "mine");
}

TEST_CASE("several trainings, by what tells them apart") {
  const Trainings trainings;
  const std::string a = trainings.Add("runs/a & <b>");
  const std::string b = trainings.Add("runs/b");
  const std::string c = trainings.Add("runs/b/c");
  CHECK(trainings.Counted({a, b, c}) == "3 runs, 9 curves\n");
  const std::string page = trainings.Page();
  for (const char* name : {"a &amp; &lt;b&gt;", "b", "b/c"}) {
    CHECK(Shows(page, name));
    CHECK(Shows(page, std::string(name) + " train"));
    CHECK(Shows(page, std::string(name) + " eval"));
  }
  CHECK(page.find("runs/") == std::string::npos);
}

TEST_CASE("a folder given twice counts once") {
  const Trainings trainings;
  const std::string a = trainings.Add("runs/a");
  const std::string b = trainings.Add("runs/b");
  fs::create_directory_symlink(a, trainings.path() + "/link");
  CHECK(trainings.Counted({a, b + "/", a + "/", b + "//.", a + "/../b",
                           trainings.path() + "/link"}) ==
        "2 runs, 6 curves\n");
  CHECK(Shows(trainings.Page(), "a"));
  CHECK(Shows(trainings.Page(), "b train"));
  CHECK(trainings.Counted({a, a + "/"}) == "1 run, 3 curves\n");
  CHECK(Shows(trainings.Page(), a));
}

TEST_CASE("what run.json says") {
  const Trainings trainings;
  const std::string a = trainings.Add("a");
  const std::string b = trainings.Add("b");
  trainings.Write("a/run.json", kRecord + std::string("11\", \"x\": \"y\"}}"));
  trainings.Write("b/run.json", kRecord + std::string("22\", \"x\": \"y\"}}"));
  trainings.Counted({a, b});
  std::string page = trainings.Page();
  for (const char* text : {"cnn", "--seed", "11", "22"}) {
    CHECK(Shows(page, text));
  }
  CHECK_FALSE(Shows(page, "--x"));
  // Damage is a note, whatever it is.
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[1]"), std::string("{}"),
        std::string("\xff"), kRecord + std::string("1\", \"x\": 1}}"),
        std::string(R"({"model": 5, "flags": {}})"),
        std::string(R"({"model": "<m>", "flags": []})")}) {
    CAPTURE(bad);
    trainings.Write("b/run.json", bad);
    CHECK(trainings.Counted({a, b}) == "2 runs, 6 curves\n");
    page = trainings.Page();
    CHECK(Contains(page, "run.json cannot be read: "));
    CHECK(Shows(page, "cnn"));
    CHECK(page.find("<m>") == std::string::npos);
  }
}

TEST_CASE("a training says whether more of its metric is better") {
  const Trainings trainings;
  const std::string log = trainings.Add("log");
  const auto report = [&](const std::string& higher) {
    std::string rows = "seconds,step,set,name,value\n";
    for (int step = 1; step <= 3; ++step) {
      rows += fmt::format("1,{0},eval,loss,{0}\n1,{0},eval,gap,{0}\n", step);
    }
    trainings.Write("log/scalars.csv", rows);
    trainings.Write("log/run.json",
                    kRecord + std::string("1\"}") + higher + "}");
    trainings.Counted({log});
    return trainings.Page();
  };
  CHECK_FALSE(Shows(report(""), "3 at step 3"));
  CHECK(Shows(report(""), "1 at step 1"));  // the loss
  CHECK(Shows(report(R"(, "higher_is_better": true)"), "3 at step 3"));
  CHECK_FALSE(Shows(report(R"(, "higher_is_better": false)"), "3 at step 3"));
  CHECK(Contains(report(R"(, "higher_is_better": 1)"),
                 "run.json cannot be read: "));
  // As a training writes it.
  const std::string real = trainings.path() + "/real";
  REQUIRE(testing::RunMnist(
              testing::OnMnist("train", {"--steps", "1", "--log-dir", real}))
              .code == 0);
  CHECK(Contains(TextOf(real + "/run.json"), "\"higher_is_better\": true"));
}

TEST_CASE("what goes wrong, and leaves the page alone") {
  const Trainings trainings;
  const std::string a = trainings.Add("a");
  trainings.Write("out.html", "before");
  const std::string nowhere = trainings.path() + "/nowhere";
  CheckError(trainings.Report({a, nowhere}), "sluice", 1,
             "'" + nowhere +
                 "' holds no scalars.csv, which a training writes "
                 "into its --log-dir");
  CheckError(trainings.Report({trainings.path()}), "sluice", 1,
             "holds no scalars.csv");
  CheckError(trainings.Report({""}), "sluice", 1, "'' holds no scalars.csv");
  const std::string b = trainings.Add("b");
  trainings.Write("b/scalars.csv", "seconds,step,set,name,value\n1,2\n");
  CheckError(trainings.Report({a, b}), "sluice", 1, "b/scalars.csv', line 2: ");
  CheckError(trainings.Report({}), "sluice", 2, "log_dir is required");
  CHECK(trainings.Page() == "before");
  CheckError(
      testing::RunProgram(SLUICE_BIN_DIR "/sluice",
                          {"report", a, "--output", nowhere + "/out.html"}),
      "sluice", 1, nowhere);
}

TEST_CASE("a training that was killed, or has not measured yet") {
  const Trainings trainings;
  const std::string a = trainings.Add("a");
  const std::string whole = TextOf(a + "/scalars.csv");
  trainings.Write("a/scalars.csv", whole.substr(0, whole.size() - 1));
  CHECK(trainings.Counted({a}) == "1 run, 3 curves\n");
  trainings.Write("a/scalars.csv", whole.substr(0, whole.find('\n') + 1));
  CHECK(trainings.Counted({a}) == "1 run, 0 curves\n");
}

}  // namespace
}  // namespace sluice
