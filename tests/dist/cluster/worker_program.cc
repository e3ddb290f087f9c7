// A worker in a process of its own: cluster_worker NAME PORT, with the token as
// a line of standard input. Says where it listens; serves until that input
// ends.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "dist/cluster/worker.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  sluice::dist::WorkerOptions options;
  options.task.name = argv[1];
  options.port = std::atoi(argv[2]);
  options.task.peer_timeout = std::chrono::seconds(3);
  std::getline(std::cin, options.task.token);
  const auto worker = sluice::dist::Worker::Start(options);
  if (!worker.ok()) {
    fmt::print(stderr, "{}\n", worker.status().ToString());
    return 1;
  }
  fmt::print("listens {}\n", (*worker)->port());
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}
