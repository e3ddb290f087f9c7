#ifndef SLUICE_APPS_SLUICE_SECONDS_OF_H_
#define SLUICE_APPS_SLUICE_SECONDS_OF_H_

#include <chrono>

namespace sluice::tool {

// Seconds that the action takes.
template <typename Action>
double SecondsOf(const Action& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_SECONDS_OF_H_
