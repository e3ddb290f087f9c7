#include "apps/sluice/data/data.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "apps/decimal_range.h"
#include "apps/sluice/commands.h"
#include "engine/threads.h"

namespace sluice::tool {
namespace {

constexpr char kMakeHelp[] =
    "FROM is a folder that has a sub-folder per class, or pictures beside a\n"
    "labels.csv of lines FILE,LABEL, the classes' numbers from 0; or a file\n"
    "NAME.csv of such lines, FILE from its folder on, where a LABEL may also "
    "be\n"
    "the name of a class: these are numbered in the order of their bytes, as\n"
    "sub-folders are. OUT gets PART-00000-of-0000N, a TFRecord file of\n"
    "tf.Examples in the features of TensorFlow's ImageNet scripts, with its\n"
    "index PART-00000-of-0000N.idx, and labels.txt with the classes' names by\n"
    "label, from 0. Pictures are in a random order, the same in every run, so\n"
    "that all classes are mixed in every shard. OUT may be in FROM only where\n"
    "it is no class: below a class's folder, or in one that begins with a "
    "dot.\n"
    "\n"
    "The first bytes of all pictures to write are looked at before any is.\n"
    "Shards appear whole or not at all: after Ctrl-C or a full disk run it\n"
    "again. Shards are kept if they are whole and of the same pictures, by\n"
    "names, labels and sizes in bytes; the others are written. A picture that\n"
    "was changed in place to one of the same size is not noticed: remove the\n"
    "shards first. A second part beside the first has its classes numbered by\n"
    "the labels.txt there.\n"
    "\n"
    "With --resize N a picture whose shorter side has more than N pixels is "
    "made\n"
    "smaller until it has N, and written as JPEG of quality 95, with Exif's\n"
    "Orientation but without what else was in its file; others are written as\n"
    "they are. N is part of what makes shards the same.";

constexpr char kCopyHelp[] =
    "A folder's files go into the folder TO, which is made if need be; a "
    "single\n"
    "file becomes TO or, where that is a folder or ends with a slash, a file "
    "in\n"
    "it. Other files in TO stay. Links are followed; permissions and times "
    "are\n"
    "not copied, nor is the lock of a training, an export or sluice data make\n"
    "in FROM.\n"
    "\n"
    "A file that is there with the same size, and was not written before the "
    "one\n"
    "in FROM was, is not copied again; with --check where the CRC-32C of its\n"
    "bytes is the same, whatever the times, and then what was copied is read\n"
    "back and compared as well. Files appear whole or not at all: after\n"
    "Ctrl-C or a full disk run it again; what a killed run has left half\n"
    "written is removed then, or, if that was on another machine or in\n"
    "another container, once it is a day old. What cannot be copied is\n"
    "named, the rest is copied, and the exit code is 1.";

constexpr char kBenchHelp[] =
    "WHERE is a folder of shards, of records or tar archives, one such file, "
    "or\n"
    "a folder with pictures in it or in its folders. Each stage has those\n"
    "before it in it, on so many threads:\n"
    "  read    the files' bytes; of shards in order, in pieces of 1 MiB\n"
    "  parse   of shards: a picture's bytes, in random order, checksums "
    "verified\n"
    "  decode  that, and the whole picture decoded\n"
    "  crop    as training does: a random part decoded, resized to --size and\n"
    "          flipped half of the time; faster than decode where it is small\n"
    "  batch   that in a pipeline that makes batches\n"
    "Printed are the medians of five rounds, in which the stages take turns, "
    "and\n"
    "the least and the most. Files that the system has in memory are not read\n"
    "from the disk again: the first run after a start may be slower.";

constexpr char kCheckHelp[] =
    "A record is good if its checksums fit and it is a tf.Example with a\n"
    "label, of those in labels.txt where there is one, and a picture that can\n"
    "be decoded; a sample of a tar archive, which counts as a record, if it "
    "has\n"
    "such a label and picture. Prints where the first 20 bad ones are, and of "
    "what sluice\n"
    "data make wrote whether records are missing. The exit code is 1 if there\n"
    "is any such fault.";

CLI::Option* AddThreads(CLI::App* app, int& threads) {
  return app->add_option("--threads", threads, "Threads; 0: one per core")
      ->check(DecimalRange(0, 1024))
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
  CopyDataOptions copy;
  BenchDataOptions bench;
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
      "make", "Writes pictures of a folder or a CSV file as TFRecord files");
  MakeDataOptions& values = options->make;
  make->add_option("from", values.from, "Folder of pictures, or NAME.csv")
      ->required();
  make->add_option("out", values.out, "Folder for the files")->required();
  AddPart(make, values.part);
  make->add_option("--shards", values.shards,
                   "Files to write; by default one per 128 MB of pictures")
      ->check(DecimalRange(1, 99'999));
  make->add_option("--resize", values.resize,
                   "Make pictures' shorter sides so many pixels long, unless "
                   "they are shorter")
      ->check(DecimalRange(1, 65'500));
  AddThreads(make, options->threads);
  make->add_flag("--json", values.json, "One object");
  make->footer(kMakeHelp);
  make->callback([options] {
    options->make.threads = ThreadsOf(options->threads);
    MakeData(options->make);
  });
}

void AddCopy(CLI::App* data, const Shared& options, int& exit_code) {
  CLI::App* copy = data->add_subcommand(
      "copy", "Copies a folder or a file, again only what is missing");
  CopyDataOptions& values = options->copy;
  copy->add_option("from", values.from, "Folder or file")->required();
  copy->add_option("to", values.to, "Where to")->required();
  copy->add_flag("--check", values.check,
                 "Compare the bytes of what is there, and of what is written");
  copy->add_flag("--dry-run", values.dry_run,
                 "Say what would be copied, and change nothing");
  AddThreads(copy, options->threads);
  copy->add_flag("--json", values.json, "One object per line");
  copy->footer(kCopyHelp);
  copy->callback([options, &exit_code] {
    options->copy.threads = ThreadsOf(options->threads);
    if (!CopyData(options->copy)) exit_code = 1;
  });
}

void AddBench(CLI::App* data, const Shared& options) {
  CLI::App* bench = data->add_subcommand(
      "bench", "Measures how fast pictures can be read, decoded and cropped");
  BenchDataOptions& values = options->bench;
  bench->add_option("where", values.path, "Shards or pictures")->required();
  AddPart(bench, values.part);
  bench->add_option("--size", values.size, "Pixels of a side of a crop")
      ->check(DecimalRange(1, 4096))
      ->capture_default_str();
  bench->add_option("--batch-size", values.batch, "Pictures in a batch")
      ->check(DecimalRange(1, 65'536))
      ->capture_default_str();
  bench->add_option("--seconds", values.seconds, "To measure each stage for")
      ->check(DecimalRange(0.01, 3600.0))
      ->capture_default_str();
  AddThreads(bench, options->threads);
  bench->add_flag("--json", values.json, "One object per stage");
  bench->footer(kBenchHelp);
  bench->callback([options] {
    options->bench.threads = ThreadsOf(options->threads);
    BenchData(options->bench);
  });
}

void AddShow(CLI::App* data, const Shared& options) {
  CLI::App* show = data->add_subcommand(
      "show",
      "Prints the features of records, of any tf.Examples, or the files of "
      "samples in tar archives");
  show->add_option("path", options->path,
                   "TFRecord file or tar archive, or folder of shards")
      ->required();
  show->add_option("--records", options->records, "The first so many")
      ->check(DecimalRange(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  show->add_flag("--json", options->json, "One object per record");
  show->callback(
      [options] { ShowData(options->path, options->records, options->json); });
}

void AddCheck(CLI::App* data, const Shared& options, int& exit_code) {
  CLI::App* check =
      data->add_subcommand("check", "Looks for damaged or wrong records");
  check
      ->add_option("path", options->paths,
                   "TFRecord files, tar archives or folders of them")
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
  CLI::App* data = app.add_subcommand(
      "data", "Makes, copies and looks at files of training data");
  const auto options = std::make_shared<Options>();
  AddMake(data, options);
  AddCopy(data, options, exit_code);
  AddShow(data, options);
  AddCheck(data, options, exit_code);
  AddStatistics(data, options);
  AddBench(data, options);
  data->require_subcommand(1);
}

}  // namespace sluice::tool
