#include "models/run_context.h"

#include <fmt/format.h>

#include <cmath>

namespace sluice {

int64_t RunContext::total_steps() const {
  if (steps > 0) return steps;
  if (!knows_total_steps()) {
    throw Error(Code::kInvalidArgument,
                "how many steps training takes is not known, since its epochs "
                "end where the input does: what is reckoned over all of it, "
                "such as a learning rate, needs the number of steps (--steps), "
                "or that of examples (Dataset::ExpectSize)");
  }
  return WholeSteps(epochs * steps_per_epoch);
}

int64_t RunContext::WholeSteps(double steps) {
  // Rounding errors of epochs * steps_per_epoch must not add a step.
  const double whole = std::ceil(steps - 1e-6);
  // Also where endless epochs have no step each, which has no number.
  if (!(whole > 0)) return 0;
  return whole < 0x1p63 ? static_cast<int64_t>(whole) : kEndless;
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
