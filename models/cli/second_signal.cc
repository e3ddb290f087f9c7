#include "models/cli/second_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace sluice {

int LauncherPid() {
  const pid_t leader = getpgrp();
  if (leader == getpid()) return getppid();
  std::ifstream file(fmt::format("/proc/{}/stat", leader));
  std::string text;
  std::getline(file, text);
  // "PID (NAME) STATE PARENT ...", where NAME may have brackets.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  char state = 0;
  int parent = 0;
  fields >> state >> parent;
  return parent;
}

}  // namespace sluice
