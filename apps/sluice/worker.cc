// `sluice worker`: a process whose devices masters use (dist/cluster/worker.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/decimal_range.h"
#include "apps/say_line.h"
#include "apps/sluice/commands.h"
#include "dist/cluster/worker.h"
#include "dist/net/address.h"
#include "engine/descriptor_limit.h"
#include "engine/device.h"
#include "engine/parse_number.h"
#include "engine/status.h"
#include "engine/threads.h"
#include "models/cli/ending_signals.h"

namespace sluice::tool {
namespace {

constexpr char kHelp[] =
    "Serves masters (docs/distributed.md, \"One session over several "
    "processes\")\n"
    "until SIGINT or SIGTERM, and says on stdout where it listens. Its "
    "variables\n"
    "end with it.\n"
    "\n"
    "Tasks of a cluster know each other by certificates, --certificates, a "
    "folder\n"
    "with ca.pem and, for /job:worker/task:1, worker-1.pem and worker-1.key; "
    "or,\n"
    "on one host, by a token, --token-file.";

struct WorkerFlags {
  std::string name = "/job:worker/task:0";
  std::string listen = "127.0.0.1:0";
  std::vector<std::string> devices = {"/cpu:0"};
  std::string certificates, token_file;
  std::string transport = "auto";
  double peer_timeout = 10;  // seconds
  int threads = 0;
};

// "127.0.0.1:4000", "[::1]:0"
void ParsePlace(const std::string& text, std::string* host, int* port) {
  const size_t colon = text.rfind(':');
  const auto number = colon < text.size()
                          ? ParseWhole<int>(text.substr(colon + 1))
                          : std::nullopt;
  if (!number || *number < 0 || *number > 65535) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--listen {}: wanted HOST:PORT", text));
  }
  *port = *number;
  *host = text.substr(0, colon);
  if (host->starts_with('[') && host->ends_with(']')) {
    *host = host->substr(1, host->size() - 2);
  }
}

dist::WorkerOptions OptionsOf(const WorkerFlags& flags) {
  if (flags.token_file.empty() && flags.certificates.empty()) {
    throw Error(Code::kInvalidArgument,
                "a worker knows its masters by --token-file or --certificates, "
                "and neither is given");
  }
  dist::WorkerOptions options;
  options.task.name = flags.name;
  options.devices = flags.devices;
  ParsePlace(flags.listen, &options.host, &options.port);
  options.task.peer_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(flags.peer_timeout * 1e3));
  options.task.transport = dist::ParseTransport(flags.transport).ValueOrThrow();
  options.task.note = [](std::string_view line) {
    SayLine(fmt::format("sluice worker: {}", line));
  };
  options.task.stalled = options.task.note;
  if (!flags.certificates.empty()) {
    const DeviceName own =
        ParseDeviceName(flags.name + "/cpu:0").ValueOrThrow();
    options.task.credentials =
        dist::ReadCredentials(flags.certificates, own.job, own.task)
            .ValueOrThrow();
  }
  if (!flags.token_file.empty()) {
    options.task.token = dist::ReadTokenFile(flags.token_file).ValueOrThrow();
  }
  return options;
}

void Serve(const WorkerFlags& flags) {
  HoldEndingSignals();
  RaiseDescriptorLimit();
  // Who has read where it listens may go; others speak to it.
  std::signal(SIGPIPE, SIG_IGN);
  if (flags.threads > 0) ComputeThreads().Resize(flags.threads);
  const dist::WorkerOptions options = OptionsOf(flags);
  const auto worker = dist::Worker::Start(options).ValueOrThrow();
  fmt::print("{} listens at {}\n", flags.name,
             dist::HostAndPort(options.host, worker->port()));
  std::fflush(stdout);
  const sigset_t signals = EndingSignals();
  int signal = 0;
  sigwait(&signals, &signal);
}

}  // namespace

void AddWorker(CLI::App& app) {
  const auto flags = std::make_shared<WorkerFlags>();
  CLI::App* worker = app.add_subcommand(
      "worker", "Serves a cluster's masters with this process's devices");
  worker->option_defaults()->always_capture_default();
  worker->add_option("--name", flags->name, "Of this task, in its cluster");
  worker->add_option("--listen", flags->listen,
                     "HOST:PORT; port 0 is one of the system's choice");
  worker
      ->add_option("--device", flags->devices, "That masters may use, several")
      ->allow_extra_args(false);
  worker
      ->add_option("--certificates", flags->certificates,
                   "Folder of this task's certificate and the authority's")
      ->envname("SLUICE_CERTIFICATES");
  worker
      ->add_option("--token-file", flags->token_file,
                   "File of 32 to 64 characters, for its owner's eyes")
      ->envname("SLUICE_TOKEN_FILE");
  worker->add_option("--transport", flags->transport,
                     "Between tasks: auto, tcp or shared memory");
  worker
      ->add_option("--peer-timeout", flags->peer_timeout,
                   "Seconds without a sign of life until a task is gone")
      ->check(DecimalRange(1.0, 86400.0));
  worker->add_option("--threads", flags->threads, "0: one per core")
      ->check(DecimalRange(0, 4096));
  worker->footer(kHelp);
  worker->callback([flags] { Serve(*flags); });
}

}  // namespace sluice::tool
