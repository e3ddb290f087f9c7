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
