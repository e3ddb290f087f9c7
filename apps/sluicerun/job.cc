#include "apps/sluicerun/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/sluicerun/output.h"
#include "apps/sluicerun/rank.h"
#include "apps/sluicerun/signals.h"
#include "apps/sluicerun/supervisor.h"
#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

std::string ErrorText(int error) {
  return std::generic_category().message(error);
}

// Several pipes per rank: the usual limit of 1024 is soon reached. Children
// get back what we had.
class MoreDescriptors {
 public:
  MoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
  }
  const rlimit& before() const { return before_; }

 private:
  rlimit before_ = {};
};

// Where the ranks' output goes. The sinks are at their addresses for good.
class Outputs {
 public:
  explicit Outputs(const JobOptions& options) : options_(options) {
    if (options.output_dir.empty()) {
      Add(STDOUT_FILENO, "stdout");
      // Lines of both must not mix where they are one (2>&1).
      if (!SameFile(STDOUT_FILENO, STDERR_FILENO)) Add(STDERR_FILENO, "stderr");
      return;
    }
    std::error_code ignored;  // opening the files says what is wrong
    std::filesystem::create_directories(options.output_dir, ignored);
    for (int rank = 0; rank < options.size; ++rank) {
      OpenFile(fmt::format("rank-{}.out", rank));
      OpenFile(fmt::format("rank-{}.err", rank));
    }
  }

  Stream OfRank(int rank, dist::Descriptor pipe, bool is_error, Tail* tail) {
    if (!options_.output_dir.empty()) {
      Sink* sink =
          sinks_[2 * static_cast<size_t>(rank) + (is_error ? 1 : 0)].get();
      return {std::move(pipe), Stream::Form::kBytes, "", sink, tail};
    }
    std::string prefix = options_.tag_output ? fmt::format("[{}] ", rank) : "";
    Sink* sink = is_error ? sinks_.back().get() : sinks_.front().get();
    return {std::move(pipe), Stream::Form::kLines, std::move(prefix), sink,
            tail};
  }

  const std::vector<std::unique_ptr<Sink>>& sinks() const { return sinks_; }

 private:
  static bool SameFile(int a, int b) {
    struct stat first = {}, second = {};
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  }
  void Add(int descriptor, std::string name) {
    sinks_.push_back(std::make_unique<Sink>(descriptor, std::move(name)));
  }
  void OpenFile(const std::string& name) {
    const std::string path = options_.output_dir + "/" + name;
    files_.emplace_back(
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (files_.back().get() < 0) {
      throw Error(Code::kUnavailable,
                  fmt::format("cannot write '{}': {}", path, ErrorText(errno)));
    }
    Add(files_.back().get(), path);
  }

  const JobOptions& options_;
  std::vector<dist::Descriptor> files_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

JobPlan PlanOf(const JobOptions& options) {
  JobPlan plan;
  plan.command = options.command;
  plan.size = options.size;
  plan.pin = options.pin;
  if (options.pin) plan.cpus = AllowedCpus();
  return plan;
}

// A shell's word for the text.
std::string Quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace

int RunJob(const JobOptions& options) {
  const MoreDescriptors descriptors;
  Outputs outputs(options);
  std::optional<dist::Listener> listener =
      dist::Listener::Open("127.0.0.1").ValueOrThrow();
  JobPlan plan = PlanOf(options);
  plan.coordinator = fmt::format("127.0.0.1:{}", listener->port());
  plan.listen_fd = listener->descriptor();
  plan.token = NewToken();
  plan.open_files = descriptors.before();
  SignalQueue signals;
  Supervisor supervisor(options.timeout_kill, outputs.sinks(), signals);
  for (int rank = 0; rank < options.size; ++rank) {
    Started started = StartRank(plan, rank, signals);
    if (started.error != 0) {
      Say(fmt::format("cannot run '{}'{}: {}", options.command[0],
                      rank == 0 ? "" : fmt::format(" as rank {}", rank),
                      ErrorText(started.error)));
      return started.error == ENOENT ? kNotFound : kNotRunnable;
    }
    auto tail = std::make_unique<Tail>();
    Stream out = outputs.OfRank(rank, std::move(started.out), false, nullptr);
    Stream err = outputs.OfRank(rank, std::move(started.err), true, tail.get());
    supervisor.Add(
        {started.pid, std::move(out), std::move(err), std::move(tail)});
  }
  // Rank 0 has it. Were it ours too, who connects would not learn that rank 0
  // is gone.
  listener.reset();
  return supervisor.Run();
}

void PrintJob(const JobOptions& options) {
  JobPlan plan = PlanOf(options);
  plan.coordinator = "127.0.0.1:PORT";
  for (int rank = 0; rank < options.size; ++rank) {
    std::string line;
    for (const auto& [name, value] : RankVariables(plan, rank)) {
      line += fmt::format("{}={} ", name, value);
    }
    if (options.pin) {
      line +=
          fmt::format("taskset -c {} ", fmt::join(RankCpus(plan, rank), ","));
    }
    for (const std::string& word : options.command) line += Quoted(word) + " ";
    line.back() = '\n';
    fmt::print("{}", line);
  }
}

}  // namespace sluice::launcher
