#include "apps/sluice/data.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "apps/sluice/commands.h"
#include "engine/threads.h"

namespace sluice::tool {
namespace {

constexpr char kMakeHelp[] =
    "FOLDER has a sub-folder per class, or pictures beside a labels.csv of\n"
    "lines FILE,LABEL. OUT gets PART-00000-of-0000N, a TFRecord file of\n"
    "tf.Examples in the features of TensorFlow's ImageNet scripts, with its\n"
    "index PART-00000-of-0000N.idx, and labels.txt with the classes' names by\n"
    "label, from 0. Pictures are in a random order, the same in every run, so\n"
    "that all classes are mixed in every shard.\n"
    "\n"
    "The first bytes of all pictures to write are looked at before any is.\n"
    "Shards appear whole or not at all: after Ctrl-C or a full disk run it\n"
    "again. Shards are kept if they are whole and of the same pictures, by\n"
    "names, labels and sizes in bytes; the others are written. A picture that\n"
    "was changed in place to one of the same size is not noticed: remove the\n"
    "shards first. A second part beside the first has its classes numbered by\n"
    "the labels.txt there.";

constexpr char kCheckHelp[] =
    "A record is good if its checksums fit and it is a tf.Example with a\n"
    "label, of those in labels.txt where there is one, and a picture that can\n"
    "be decoded. Prints where the first 20 bad ones are, and of what sluice\n"
    "data make wrote whether records are missing. The exit code is 1 if there\n"
    "is any such fault.";

CLI::Option* AddThreads(CLI::App* app, int& threads) {
  return app->add_option("--threads", threads, "Threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}
int ThreadsOf(int threads) {
  return threads == 0 ? AvailableCores() : threads;
}

CLI::Option* AddPart(CLI::App* app, std::string& part) {
  return app->add_option("--part", part, "Part of the data set")
      ->check(CLI::IsMember({"train", "validation", "test"}))
      ->capture_default_str();
}

// What the command line says; lives as long as the callbacks.
struct Options {
  MakeDataOptions make;
  std::string path;
  std::vector<std::string> paths;
  std::string part = "train";
  int64_t records = 3;
  int threads = 0;
  bool json = false;
};
using Shared = std::shared_ptr<Options>;

void AddMake(CLI::App* data, const Shared& options) {
  CLI::App* make = data->add_subcommand(
      "make", "Writes a folder of pictures as TFRecord files");
  MakeDataOptions& values = options->make;
  make->add_option("folder", values.folder, "Folder of pictures")->required();
  make->add_option("out", values.out, "Folder for the files")->required();
  AddPart(make, values.part);
  make->add_option("--shards", values.shards,
                   "Files to write; by default one per 128 MB of pictures")
      ->check(CLI::Range(1, 99'999));
  AddThreads(make, options->threads);
  make->add_flag("--json", values.json, "One object");
  make->footer(kMakeHelp);
  make->callback([options] {
    options->make.threads = ThreadsOf(options->threads);
    MakeData(options->make);
  });
}

void AddShow(CLI::App* data, const Shared& options) {
  CLI::App* show = data->add_subcommand(
      "show", "Prints the features of records, of any tf.Examples");
  show->add_option("path", options->path, "TFRecord file, or folder of shards")
      ->required();
  show->add_option("--records", options->records, "The first so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  show->add_flag("--json", options->json, "One object per record");
  show->callback(
      [options] { ShowData(options->path, options->records, options->json); });
}

void AddCheck(CLI::App* data, const Shared& options, int& exit_code) {
  CLI::App* check =
      data->add_subcommand("check", "Looks for damaged or wrong records");
  check->add_option("path", options->paths, "TFRecord files or folders of them")
      ->required();
  AddThreads(check, options->threads);
  check->add_flag("--json", options->json, "One object per line");
  check->footer(kCheckHelp);
  check->callback([options, &exit_code] {
    const bool good =
        CheckData(options->paths, ThreadsOf(options->threads), options->json);
    if (!good) exit_code = 1;
  });
}

void AddStatistics(CLI::App* data, const Shared& options) {
  CLI::App* stats = data->add_subcommand(
      "stats",
      "Prints mean and deviation of pixels, pictures per class, sizes");
  stats->add_option("folder", options->path, "Folder of shards")->required();
  AddPart(stats, options->part);
  AddThreads(stats, options->threads);
  stats->add_flag("--json", options->json, "One object per class, one of all");
  stats->callback([options] {
    PrintDataStatistics(options->path, options->part,
                        ThreadsOf(options->threads), options->json);
  });
}

}  // namespace

void AddData(CLI::App& app, int& exit_code) {
  CLI::App* data =
      app.add_subcommand("data", "Makes and looks at TFRecord files");
  const auto options = std::make_shared<Options>();
  AddMake(data, options);
  AddShow(data, options);
  AddCheck(data, options, exit_code);
  AddStatistics(data, options);
  // Not require_subcommand: its message does not say what was unknown.
  data->allow_extras();
  data->callback([data] {
    if (!data->get_subcommands().empty()) return;
    const std::vector<std::string> rest = data->remaining();
    throw CLI::ValidationError(
        "data", "wanted make, show, check or stats, got " +
                    (rest.empty() ? "nothing" : "'" + rest[0] + "'"));
  });
}

}  // namespace sluice::tool
