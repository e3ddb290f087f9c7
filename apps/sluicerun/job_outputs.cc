#include "apps/sluicerun/job_outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/status.h"

namespace sluice::launcher {
namespace {

bool SameFile(int a, int b) {
  struct stat first = {}, second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

JobOutputs::JobOutputs(const JobOptions& options) : options_(options) {
  if (options.output_dir.empty()) {
    Add(STDOUT_FILENO, "stdout");
    // Lines of both must not mix where they are one (2>&1).
    if (!SameFile(STDOUT_FILENO, STDERR_FILENO)) Add(STDERR_FILENO, "stderr");
    return;
  }
  std::error_code ignored;  // opening the files says what is wrong
  std::filesystem::create_directories(options.output_dir, ignored);
  const auto open_both = [&](const std::string& name) {
    OpenFile(name + ".out");
    OpenFile(name + ".err");
  };
  for (int rank = 0; rank < options.Most(); ++rank) {
    open_both(fmt::format("rank-{}", rank));
  }
  for (int server = 0; server < options.servers; ++server) {
    open_both(fmt::format("ps-{}", server));
  }
}

Stream JobOutputs::OfRank(int rank, dist::Descriptor pipe, bool is_error,
                          Tail* tail) {
  return Of(rank, std::to_string(rank), std::move(pipe), is_error, tail);
}

Stream JobOutputs::OfServer(int server, dist::Descriptor pipe, bool is_error,
                            Tail* tail) {
  return Of(options_.Most() + server, fmt::format("ps {}", server),
            std::move(pipe), is_error, tail);
}

Stream JobOutputs::Of(int i, const std::string& name, dist::Descriptor pipe,
                      bool is_error, Tail* tail) {
  if (!options_.output_dir.empty()) {
    Sink* sink = sinks_[2 * static_cast<size_t>(i) + (is_error ? 1 : 0)].get();
    return {std::move(pipe), Stream::Form::kBytes, "", sink, tail};
  }
  std::string prefix = options_.tag_output ? fmt::format("[{}] ", name) : "";
  Sink* sink = is_error ? sinks_.back().get() : sinks_.front().get();
  return {std::move(pipe), Stream::Form::kLines, std::move(prefix), sink, tail};
}

void JobOutputs::Add(int descriptor, std::string name) {
  sinks_.push_back(std::make_unique<Sink>(descriptor, std::move(name)));
}

void JobOutputs::OpenFile(const std::string& name) {
  const std::string path = options_.output_dir + "/" + name;
  files_.emplace_back(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (files_.back().get() < 0) {
    throw Error(Code::kUnavailable,
                fmt::format("cannot write '{}': {}", path,
                            std::generic_category().message(errno)));
  }
  Add(files_.back().get(), path);
}

}  // namespace sluice::launcher
