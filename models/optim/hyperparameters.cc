#include "models/optim/hyperparameters.h"

#include <fmt/format.h>

#include "engine/status.h"

namespace sluice {

void RequireFactor(std::string_view who, std::string_view name, double x) {
  if (IsFactor(x)) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: wanted a finite {} that is not negative, got {}",
                          who, name, x));
}

void RequireFraction(std::string_view who, std::string_view name, double x) {
  const bool below = x >= 0 && x < 1;
  if (below && static_cast<float>(x) < 1) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: wanted a {} in [0, 1), got {}{}", who, name, x,
                          below ? ", which is 1 in float32" : ""));
}

}  // namespace sluice
