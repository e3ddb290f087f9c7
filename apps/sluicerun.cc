// The launcher: runs a program as the several processes of a job.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/decimal_range.h"
#include "apps/sluicerun/agent.h"
#include "apps/sluicerun/certificates.h"
#include "apps/sluicerun/emit.h"
#include "apps/sluicerun/hosts.h"
#include "apps/sluicerun/job.h"
#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "engine/parse_number.h"
#include "engine/standard_streams.h"
#include "engine/status.h"
#include "engine/text/arguments.h"

namespace sluice::launcher {
namespace {

constexpr int kMostProcesses = 4096;

constexpr char kHelp[] =
    "PROGRAM runs once per rank, found as a shell finds it; what follows it "
    "are\n"
    "its own arguments. Each process is told its rank, the job's size and "
    "where\n"
    "to meet the others by SLUICE_* variables.\n"
    "\n"
    "Output: each line of a rank's stdout and stderr comes whole behind\n"
    "\"[rank] \", an unfinished last one is ended, and lines of more than 4 "
    "MiB\n"
    "are cut. Without hosts rank 0 reads the launcher's standard input, unless "
    "that\n"
    "is a terminal; every other's is empty.\n"
    "\n"
    "Hosts: each rank has an ssh of its own, which must ask for no password, "
    "and "
    "runs\n"
    "where this process does. Nothing secret is in an argument or a variable. "
    "All\n"
    "that goes over the network is encrypted, by certificates of the job.\n"
    "\n"
    "Parameter servers: --ps K starts PROGRAM K times more, beside the "
    "--processes,\n"
    "to keep the variables that these train (docs/distributed.md); their "
    "lines\n"
    "come behind \"[ps K] \".\n"
    "\n"
    "Cores: without --pin every process may use all, and Sluice's programs "
    "start as\n"
    "many threads as are an equal part of them. With it each has its own.\n"
    "\n"
    "Restarts: a parameter server that has ended is started again alone, at "
    "once; for\n"
    "another process all start anew, after 1 s, 2 s, 4 s "
    "up to a\n"
    "minute, so that a training goes on from its last checkpoint; Sluice's "
    "programs\n"
    "take --restart for the first start alone (by SLUICE_JOB, the job's name). "
    "Not\n"
    "after wrong usage (code 2), 126, 127 or a signal to the launcher.\n"
    "\n"
    "Elastic: with --elastic MIN a rank that is killed, crashes or stands "
    "still "
    "does\n"
    "not end the job while MIN are left; they go on from the last step, and "
    "as often\n"
    "as --max-restarts says another takes its place. One that fails by itself, "
    "with\n"
    "an exit code, ends the job as ever. A host that is gone takes its ranks "
    "along;\n"
    "those that come start there if it answers, else where there are free "
    "slots. With\n"
    "--elastic MIN:MAX --hostfile FILE more are started, up to MAX, when FILE "
    "has\n"
    "changed and has free slots; a host that it has no more gets nobody new. "
    "For\n"
    "trainings with --strategy ring.\n"
    "\n"
    "Ctrl-C, SIGTERM, SIGHUP and SIGQUIT are passed on to every rank, each "
    "time\n"
    "once; after a second one (Ctrl-C after any, SIGTERM or SIGQUIT again), "
    "ranks\n"
    "that go on are killed as --timeout-kill says. SIGUSR1 and SIGUSR2 are "
    "passed\n"
    "on, too, and end only those that do not take them.\n"
    "The first rank that fails ends the others; one that stands still "
    "when\n"
    "others have ended well has failed after the program's --peer-timeout (60 "
    "s).\n"
    "The exit code is its\n"
    "own, 128 + N where signal N ended it, 127 where the program is not "
    "found,\n"
    "126 where it cannot be run, 2 for wrong usage.";

std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int Fail(int code, const std::string& message) {
  std::fflush(stdout);
  Say(OneLine(message));
  return code;
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) throw Error(Code::kInvalidArgument, "--ssh is empty");
  return words;
}

// "2", "2:8"
void ParseElastic(const std::string& text, JobOptions* options) {
  const size_t colon = text.find(':');
  const auto number = [&](const std::string& digits) {
    const auto value = ParseWhole<int>(digits);
    if (!value || *value < 1 || *value > kMostProcesses) {
      throw CLI::ValidationError(
          "--elastic", fmt::format("'{}': wanted MIN or MIN:MAX, of 1 to {}",
                                   text, kMostProcesses));
    }
    return *value;
  };
  options->least = number(text.substr(0, colon));
  if (colon != std::string::npos) {
    options->most = number(text.substr(colon + 1));
  }
}

// What a program of Sluice's is told by a flag for seconds: "--name 3",
// "--name=3"; of others, or where it is none, the same as before. Up to as many
// as the program takes (models/cli/job_flags.cc).
void TakeSeconds(const std::vector<std::string>& command,
                 const std::string& name, double* seconds) {
  for (size_t i = 1; i < command.size(); ++i) {
    std::string_view text;
    if (command[i] == name && i + 1 < command.size()) {
      text = command[i + 1];
    } else if (command[i].starts_with(name + "=")) {
      text = std::string_view(command[i]).substr(name.size() + 1);
    }
    const auto value = ParseWhole<double>(text);
    if (value && *value > 0 && *value <= 1e6) *seconds = *value;
  }
}

// How many ranks the hosts are to have to begin with. Throws Error where they
// have not the slots for them.
int SizeOn(const JobOptions& options) {
  const auto slots = static_cast<int>(SeatRanks(options.hosts, 0).size());
  if (options.size > 0 || options.most == 0) {
    return static_cast<int>(SeatRanks(options.hosts, options.size).size());
  }
  if (options.most > slots && !options.Grows()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--elastic {}:{}: the hosts have {} slots; hosts "
                            "that come later are read from --hostfile",
                            options.least, options.most, slots));
  }
  return std::min(slots, options.most);
}

// What is wrong with what was asked for; empty: nothing. `counted`: by -n.
std::string ElasticTrouble(const JobOptions& options, bool counted,
                           bool by_others) {
  if (options.least == 0) return {};
  if (by_others || options.servers > 0) {
    return "--elastic is for ranks that sluicerun starts: not with --ps, "
           "--emit "
           "or --make-certificates";
  }
  if (options.most > 0 && options.most != options.size &&
      (counted || !options.Grows())) {
    return fmt::format(
        "--elastic {}:{} and -n {}: as many are started as there are at most, "
        "but for those of hosts that come later, which are read from "
        "--hostfile, without -n",
        options.least, options.most, options.size);
  }
  if (options.least > options.Most()) {
    return fmt::format("--elastic {}: of {} processes there are never so many",
                       options.least, options.Most());
  }
  if (options.least > options.size) {
    return fmt::format("--elastic {}:{}: {} has {} slots to begin with",
                       options.least, options.most, options.hostfile,
                       options.size);
  }
  return {};
}

void AddOptions(CLI::App& app, JobOptions& options) {
  app.prefix_command();
  app.add_option("-n,--processes", options.size,
                 "Number of processes (of hosts: default all slots)")
      ->check(DecimalRange(1, kMostProcesses));
  app.add_option("--ps", options.servers,
                 "Parameter servers beside these, for programs with --strategy "
                 "ps, which share out the variables and cut large ones by "
                 "rows; on the hosts in turn")
      ->check(DecimalRange(1, kMostProcesses));
  CLI::Option* hosts = app.add_option_function<std::string>(
      "-H,--host",
      [&](const std::string& text) { options.hosts = ParseHosts(text); },
      "Run on these hosts through ssh: hostA:4,hostB:4");
  app.add_option_function<std::string>(
         "--hostfile",
         [&](const std::string& path) {
           options.hosts = ReadHostFile(path);
           options.hostfile = path;
         },
         "The hosts as a file in Open MPI's form, but that a host without "
         "slots=N counts one, not its cores")
      ->excludes(hosts);
  app.add_option("--port", options.port,
                 "Where the first process of each host listens, the others at "
                 "those behind it (default: anywhere; pods: 4000, every one)")
      ->check(DecimalRange(1024, 65535));
  app.add_option("--ssh-port", options.ssh.port, "Of the hosts' ssh")
      ->check(DecimalRange(1, 65535));
  app.add_option_function<std::string>(
      "--ssh",
      [&](const std::string& text) { options.ssh.command = Words(text); },
      "What runs in ssh's place, with its options: 'ssh -i KEY'");
  app.add_option("--remote-sluicerun", options.ssh.program,
                 "sluicerun on the hosts (default: where it is here)");
  CLI::Option* tls = app.add_flag(
      "--tls", options.tls,
      "Encrypt what processes of this host send each other by TCP, "
      "too");
  CLI::Option* certificates = app.add_option(
      "--certificates", options.certificates,
      "Folder on every host with ca.pem, worker-RANK.pem, worker-RANK.key, of "
      "servers ps-I.pem, ps-I.key, in place of the launcher's own (with --emit "
      "kubernetes: on this one)");
  app.add_flag("--allow-plaintext", options.allow_plaintext,
               "Go to other hosts without encryption")
      ->excludes(certificates)
      ->excludes(tls);
  CLI::Option* tag =
      app.add_flag("--tag-output,!--no-tag-output", options.tag_output,
                   "Put \"[rank] \" before each line (default)");
  app.add_option("--output-dir", options.output_dir,
                 "Write rank-N.out and rank-N.err there, untagged, instead")
      ->excludes(tag);
  app.add_option("--timeout-kill", options.timeout_kill,
                 "Seconds from SIGTERM to SIGKILL when the job is ended")
      ->capture_default_str()
      ->check(DecimalRange(0.0, 86400.0));
  app.add_option("--max-restarts", options.max_restarts,
                 "How often the job, or a parameter server of it alone, is "
                 "started again where one has failed")
      ->capture_default_str()
      ->check(DecimalRange(0, 1000000));
  app.add_option_function<std::string>(
         "--elastic",
         [&](const std::string& text) { ParseElastic(text, &options); },
         "Go on without ranks that are lost while so many are left: MIN, or "
         "MIN:MAX for -n MAX; with --hostfile as many of MAX as it has slots "
         "for, and others when it changes")
      ->type_name("MIN[:MAX]");
  app.add_flag("--pin", options.pin,
               "Give each process its share of the CPUs, neighbours by number");
  app.set_version_flag("--version", "sluicerun " SLUICE_VERSION);
  app.footer(kHelp);
}

// For those who start the processes without this launcher.
struct ForOthers {
  std::string certificates;  // a folder to make
  EmitOptions emit;
};

constexpr char kValidDays[] = "--valid-days";

void AddForOthers(CLI::App& app, ForOthers& others) {
  EmitOptions& emit = others.emit;
  CLI::Option* certificates =
      app.add_option("--make-certificates", others.certificates,
                     "Make a folder for SLUICE_CERTIFICATES, of --processes "
                     "and --ps, and end");
  CLI::Option* form =
      app.add_option("--emit", emit.form,
                     "Print the job as another starts it, and end: slurm (a "
                     "batch script), kubernetes (a manifest with private "
                     "keys, for kubectl create -f -)")
          ->check(CLI::IsMember({"slurm", "kubernetes"}))
          ->excludes(certificates);
  app.add_option("--job-name", emit.name,
                 "Its name there (default: the program's)")
      ->needs(form);
  app.add_option("--image", emit.image, "The container's")->needs(form);
  app.add_option(
         "--claim", emit.claims,
         "NAME:/PATH, a persistentVolumeClaim in the container; several")
      ->allow_extra_args(false)
      ->needs(form);
  const auto asks = [&](const char* name, int* number, const char* what) {
    app.add_option(name, *number,
                   fmt::format("{} that each process asks for there", what))
        ->needs(form)
        ->check(DecimalRange(1, 1 << 20));
  };
  asks("--cpus", &emit.cpus, "CPUs");
  asks("--gpus", &emit.gpus, "NVIDIA's GPUs (of Kubernetes: each worker)");
  asks("--memory", &emit.memory, "GiB of memory");
  app.add_option(kValidDays, emit.days, "Of the certificates that either makes")
      ->capture_default_str()
      ->check(DecimalRange(1, 3650));
}

// But for those of a job that it runs itself.
bool MakesCertificates(const ForOthers& others, const JobOptions& options) {
  if (others.emit.form.empty()) return !others.certificates.empty();
  return options.certificates.empty() && !options.allow_plaintext;
}

// The first of the launcher's own options whose value is empty, for which CLI11
// would take the next word; empty: there is none. What follows them is the
// program's.
std::string EmptyOption(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.size() < 2 || word[0] != '-') break;
    const std::string name =
        word.substr(0, word[1] == '-' ? word.find('=') : 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) break;
    if (HasEmptyValue(word)) return word;
    if (word == name && option->get_items_expected_max() > 0) ++i;
  }
  return {};
}

int Printed() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  return Fail(kFailure,
              "cannot print: " + std::generic_category().message(errno));
}

int Run(int argc, char** argv) {
  JobOptions options;
  options.size = 0;
  bool dry_run = false;
  ForOthers others;
  CLI::App app(
      "Runs a program as the processes of one job, on this machine or "
      "others");
  AddOptions(app, options);
  AddForOthers(app, others);
  app.add_flag("--dry-run", dry_run,
               "Print what would run, one line per rank, and end");
  if (const std::string empty = EmptyOption(app, argc, argv); !empty.empty()) {
    return Fail(kUsage, empty + " has no value; sluicerun --help says more");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return Fail(kUsage,
                std::string(error.what()) + "; sluicerun --help says more");
  }
  options.command = app.remaining();
  const bool counted = options.size > 0;
  if (options.hosts.empty()) {
    if (!counted) options.size = options.most;
    if (options.size == 0) {
      return Fail(kUsage,
                  "--processes or --host is required; sluicerun --help "
                  "says more");
    }
  } else {
    options.size = SizeOn(options);
  }
  const bool by_others =
      !others.emit.form.empty() || !others.certificates.empty();
  if (const std::string trouble = ElasticTrouble(options, counted, by_others);
      !trouble.empty()) {
    return Fail(kUsage, trouble + "; sluicerun --help says more");
  }
  if (options.port != 0 && options.hosts.empty() && others.emit.form.empty()) {
    return Fail(kUsage,
                "--port is for hosts and --emit: processes of this host alone "
                "let nobody else in; sluicerun --help says more");
  }
  if (!others.emit.form.empty() &&
      (options.pin || !options.output_dir.empty())) {
    return Fail(kUsage,
                "--pin and --output-dir are for processes that sluicerun "
                "starts: not with --emit; sluicerun --help says more");
  }
  if (app.count(kValidDays) > 0 && !MakesCertificates(others, options)) {
    return Fail(kUsage,
                "--valid-days is of certificates that --emit or "
                "--make-certificates makes; sluicerun --help says more");
  }
  if (!others.certificates.empty()) {
    WriteCertificates(others.certificates, options.size, options.servers,
                      others.emit.days);
    return 0;
  }
  if (options.ssh.program.empty()) {
    options.ssh.program = std::filesystem::read_symlink("/proc/self/exe");
  }
  if (!options.command.empty() && options.command[0] == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command[0][0] == '-') {
    return Fail(kUsage, fmt::format("unknown option '{}'; sluicerun --help "
                                    "says more",
                                    options.command[0]));
  }
  if (options.command.empty()) {
    return Fail(kUsage, "no program to run; sluicerun --help says more");
  }
  TakeSeconds(options.command, "--peer-timeout", &options.peer_timeout);
  TakeSeconds(options.command, "--join-timeout", &options.join_timeout);
  if (!others.emit.form.empty()) {
    fmt::print("{}", others.emit.form == "slurm"
                         ? SlurmScript(others.emit, options)
                         : KubernetesManifest(others.emit, options));
    return Printed();
  }
  if (std::getenv("SLUICE_RANK") != nullptr) {
    return Fail(kUsage,
                "SLUICE_RANK is set: this is a process of a job itself, and "
                "jobs do not nest");
  }
  const char* const job = std::getenv("SLUICE_JOB");
  const bool named = job != nullptr && *job != '\0';
  options.id = named ? job : NewToken().substr(0, 16);
  if (!dry_run) return RunJob(options);
  PrintJob(options);
  return Printed();
}

int Main(int argc, char** argv) {
  try {
    OpenStandardStreams(/*usable=*/true);  // ranks inherit them
    if (argc == 2 && std::string_view(argv[1]) == "--agent") return RunAgent();
    return Run(argc, argv);
  } catch (const std::exception& error) {
    return Fail(kFailure, error.what());
  }
}

}  // namespace
}  // namespace sluice::launcher

int main(int argc, char** argv) {
  return sluice::launcher::Main(argc, argv);
}
