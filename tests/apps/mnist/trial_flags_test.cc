// What is tried before a training, and what lowers, weighs and freezes in it:
// from the command line to the result.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <sstream>
#include <tuple>
#include <vector>

#include "io/files/file.h"
#include "io/sources/datasets.h"
#include "tests/support/error_text.h"
#include "tests/support/last_object.h"
#include "tests/support/mnist_program.h"
#include "tests/support/newest_tensors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using testing::CheckMnistError;
using testing::Contains;
using testing::LastObject;
using testing::MnistData;
using testing::NewestTensors;
using testing::OnMnist;
using testing::Outcome;
using testing::RunMnist;
using testing::TemporaryFolder;
using testing::TextOf;

TEST_CASE("a rehearsal goes through everything and leaves nothing") {
  TemporaryFolder folder;
  const auto names = [&] {
    return FileSystem::Posix().List(folder.path()).ValueOrThrow();
  };
  const Outcome outcome = testing::RunProgram(
      "/bin/sh", {"-c", "TMPDIR=$0 exec \"$@\"", folder.path(), testing::kMnist,
                  "train", "--data-dir", MnistData().path(), "--fast-dev-run"});
  CHECK(outcome.code == 0);
  CHECK(Contains(outcome.err, "fast dev run: all is well"));
  CHECK(names().empty());
  const Outcome wrong =
      RunMnist({"train", "--data-dir", "/no/such", "--fast-dev-run"});
  CheckMnistError(wrong, 1, "fast dev run: 2 training steps: ");
}

TEST_CASE("the first batches are learnt by heart") {
  TemporaryFolder folder;
  const auto flags = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--overfit-batches",
                                    "1",
                                    "--batch-size",
                                    "20",
                                    "--epochs",
                                    "150",
                                    "--json",
                                    "--evaluate-every",
                                    "0",
                                    "--deterministic"};
    all.insert(all.end(), more.begin(), more.end());
    return OnMnist("train", all);
  };
  const Outcome outcome = RunMnist(flags({"--log-dir", folder / "whole"}));
  CHECK(outcome.code == 0);
  const Json result = LastObject(outcome.out);
  CHECK(result["evaluated_on"] == "training");
  CHECK(result["training_accuracy"] == 1);
  CHECK(result["steps"] == 150);  // an epoch is the batch
  // The record has it, so that a resume needs it not.
  REQUIRE(RunMnist(flags({"--log-dir", folder / "parts", "--max-steps", "70"}))
              .code == 0);
  REQUIRE(RunMnist({"train", "--log-dir", folder / "parts"}).code == 0);
  const auto whole = NewestTensors(folder / "whole"),
             parts = NewestTensors(folder / "parts");
  for (const auto& [name, tensor] : whole) {
    CAPTURE(name);
    CHECK(parts.at(name).BitEqual(tensor));
  }
}

TEST_CASE("the rate is looked for, and drawn") {
  TemporaryFolder folder;
  const std::string page = folder / "rates.html";
  const Outcome json =
      RunMnist(OnMnist("train", {"--find-rate", page, "--json"}));
  CHECK(json.code == 0);
  const Json result = LastObject(json.out);
  CHECK(result["event"] == "find_rate");
  const double suggested = result["suggested"];
  // Adam's rates on such networks.
  CHECK(suggested > 1e-4);
  CHECK(suggested < 0.1);
  CHECK(Contains(TextOf(page), fmt::format("{:.3g}", suggested)));
  CHECK(Contains(TextOf(page), "<svg"));
  const Outcome text = RunMnist(OnMnist("train", {"--find-rate=" + page}));
  CHECK(Contains(text.out, fmt::format("{:.2g}", suggested)));
  // The mean gradient of two halves is that of the whole.
  const Json halves = LastObject(
      RunMnist(OnMnist("train", {"--find-rate", page, "--json", "--batch-size",
                                 "50", "--accumulate", "2"}))
          .out);
  CHECK(halves["steps"] == result["steps"]);
  CHECK(halves["suggested"].get<double>() ==
        doctest::Approx(suggested).epsilon(0.5));
  CheckMnistError(RunMnist(OnMnist("train", {"--find-rate", folder.path()})), 1,
                  "wanted a file to write");
  CheckMnistError(RunMnist(OnMnist("train", {"--find-rate", folder / "no/x"})),
                  1, "no/x");
}

TEST_CASE("flags freeze, weigh and lower, and a resume knows them") {
  TemporaryFolder folder;
  const auto train = [](const std::string& log,
                        const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--freeze",
                                      "fc1/*",
                                      "--plateau",
                                      "0",
                                      "--optimizer",
                                      "momentum",
                                      "--plateau-factor",
                                      "0.5",
                                      "--steps",
                                      "30",
                                      "--learning-rate",
                                      "0.3",
                                      "--log-dir",
                                      log,
                                      "--class-weights",
                                      "3=2,4=0",
                                      "--deterministic",
                                      "--evaluate-every",
                                      "0.5"};
    flags.insert(flags.end(), more.begin(), more.end());
    return RunMnist(OnMnist("train", flags));
  };
  const std::string log = folder / "log";
  const Outcome whole = train(log, {});
  CAPTURE(whole.err);
  REQUIRE(whole.code == 0);
  const auto tensors = NewestTensors(log);
  CHECK_FALSE(tensors.contains("fc1/weights/velocity"));
  CHECK(tensors.contains("learning_rate_factor"));
  CHECK(tensors.at("learning_rate_factor").At(0) < 1);
  CHECK(Contains(whole.err, "the learning rate is multiplied by 0.5"));
  // Nobody has learnt that there are fours.
  const Outcome predicted = RunMnist({"predict", "--log-dir", log, "--json"});
  CHECK(Contains(predicted.out, "\"digit\":3"));
  CHECK(predicted.out.find("\"digit\":4") == std::string::npos);

  const std::string parts = folder / "parts";
  REQUIRE(train(parts, {"--max-steps", "15"}).code == 0);
  REQUIRE(RunMnist({"train", "--log-dir", parts, "--deterministic"}).code == 0);
  const auto resumed = NewestTensors(parts);
  REQUIRE(resumed.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    CHECK(resumed.at(name).BitEqual(tensor));
  }

  for (const auto& [flag, value, what] :
       {std::tuple("--freeze", "fc7/*", "freeze: 'fc7/*' matches none"),
        {"--freeze", "*", "no trainable variable"},
        {"--class-weights", "12=1", "12"},
        {"--class-weights", "3=x", "3=x"}}) {
    CheckMnistError(RunMnist(OnMnist("train", {flag, value})), 1, what);
  }
  CheckMnistError(
      RunMnist(OnMnist("train", {"--plateau", "1", "--plateau-factor", "1.5"})),
      2, "--plateau-factor");
  CheckMnistError(RunMnist(OnMnist("train", {"--plateau-factor", "0.5"})), 2,
                  "--plateau");
}

TEST_CASE("what goes by evaluations is told where there are none") {
  const auto train = [](const char* every) {
    return RunMnist(
        OnMnist("train", {"--steps", "2", "--optimizer", "momentum",
                          "--learning-rate", "0.3", "--early-stopping", "2",
                          "--plateau", "1", "--evaluate-every", every}));
  };
  const Outcome never = train("0"), each = train("1");
  CHECK(never.code == 0);
  CHECK(each.code == 0);
  for (const char* flag : {"--early-stopping", "--plateau"}) {
    CHECK(Contains(never.err,
                   fmt::format("{} goes by evaluations, of which "
                               "--evaluate-every 0 has none before the end\n",
                               flag)));
    CHECK(each.err.find(flag) == std::string::npos);
  }
}

TEST_CASE("a report has the figures that predictions have") {
  TemporaryFolder folder;
  const std::string log = folder / "log", page = folder / "report.html";
  REQUIRE(RunMnist(OnMnist("train", {"--steps", "15", "--log-every", "5",
                                     "--log-dir", log}))
              .code == 0);
  const Outcome plain = RunMnist({"eval", "--log-dir", log, "--json"});
  const Outcome outcome =
      RunMnist({"eval", "--log-dir", log, "--json", "--report", page});
  REQUIRE(outcome.code == 0);
  const Json result = LastObject(outcome.out);
  CHECK(result["test_accuracy"] == LastObject(plain.out)["test_accuracy"]);
  const std::string html = TextOf(page);
  for (const char* part : {"Confusion matrix", "Worst mistakes", "<svg",
                           "data:image/png;base64,", "15</td>"}) {
    CHECK(Contains(html, part));
  }
  const double accuracy = result["test_accuracy"];
  CHECK(Contains(html, fmt::format("{:.2f} %", 100 * accuracy)));
  // The diagonal, counted from predictions and the labels of the files.
  const Outcome predicted =
      RunMnist({"predict", "--log-dir", log, "--json", "--count", "0"});
  const Dataset digits = datasets::Mnist(MnistData().path(), Mode::kEval);
  Iterator examples = digits.MakeIterator();
  Example example;
  std::istringstream lines(predicted.out);
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(examples.Next(&example).ValueOrThrow());
    ++counts[{example["label"].IntAt(0), Json::parse(line)["digit"]}];
  }
  int64_t cells = 0;
  for (const auto& [pair, count] : counts) {
    const std::string title =
        fmt::format("title=\"{} taken for {}: ", pair.first, pair.second);
    CAPTURE(title);
    const size_t cell = html.find(title);
    REQUIRE(cell != std::string::npos);
    const size_t end = html.find('>', cell);
    CHECK(html.substr(end, html.find('<', end) - end) ==
          fmt::format(">{}", count));
    ++cells;
  }
  CHECK(cells > 10);
  // Without curves it says so.
  REQUIRE(FileSystem::Posix().Remove(log + "/scalars.csv").ok());
  const Outcome bare = RunMnist({"eval", "--log-dir", log, "--report", page});
  CHECK(bare.code == 0);
  CHECK(Contains(bare.err, "no curves"));
  CHECK(TextOf(page).find("<svg") == std::string::npos);
  CheckMnistError(
      RunMnist({"eval", "--log-dir", log, "--report", folder / "no/x.html"}), 1,
      "there is no folder");
  CheckMnistError(
      RunMnist({"eval", "--log-dir", log, "--report", folder.path()}), 1,
      "wanted a file");
}

TEST_CASE("a training that had saved nothing begins with its weights again") {
  TemporaryFolder folder;
  const std::string teacher = folder / "teacher", log = folder / "log";
  REQUIRE(
      RunMnist(OnMnist("train", {"--steps", "3", "--log-dir", teacher})).code ==
      0);
  const std::string weights = teacher + "/checkpoint-3.safetensors";
  REQUIRE(
      RunMnist(OnMnist("train", {"--steps", "4", "--log-dir", log, "--weights",
                                 weights, "--freeze", "fc1/*"}))
          .code == 0);
  REQUIRE(FileSystem::Posix().Remove(log + "/checkpoint-4.safetensors").ok());
  const Outcome again = RunMnist({"train", "--log-dir", log});
  CHECK(again.code == 0);
  CHECK(Contains(again.err, "beginning with the "));
  CHECK(NewestTensors(log)
            .at("fc1/weights")
            .BitEqual(NewestTensors(teacher).at("fc1/weights")));
  // Where there is a checkpoint, there is no talk of the weights.
  const Outcome resumed = RunMnist({"train", "--log-dir", log});
  CHECK(resumed.err.find("is not used") == std::string::npos);
  // Nothing to begin with: that is said.
  const Outcome random =
      RunMnist(OnMnist("train", {"--steps", "1", "--freeze", "fc1/*"}));
  CHECK(Contains(random.err, "stays at its random first values"));
  // The curves of one training are not those of other weights.
  const std::string page = folder / "page.html";
  REQUIRE(RunMnist({"eval", "--log-dir", log, "--weights", weights, "--report",
                    page})
              .code == 0);
  CHECK(TextOf(page).find("<svg") == std::string::npos);
}

}  // namespace
}  // namespace sluice
