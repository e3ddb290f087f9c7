#include "models/run_context.h"

#include <fmt/format.h>

#include <cmath>

namespace sluice {

int64_t RunContext::total_steps() const {
  if (steps > 0) return steps;
  // Rounding errors of epochs * steps_per_epoch must not add a step.
  return static_cast<int64_t>(std::ceil(epochs * steps_per_epoch - 1e-6));
}

const std::string& RunContext::flag(const std::string& name) const {
  auto it = flags.find(name);
  if (it == flags.end()) {
    throw Error(Code::kNotFound,
                fmt::format("the program declares no flag '{}'; add it to "
                            "TrainerSpec::flags",
                            name));
  }
  return it->second;
}

}  // namespace sluice
