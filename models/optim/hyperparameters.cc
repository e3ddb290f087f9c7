#include "models/optim/hyperparameters.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/status.h"

namespace sluice {
namespace {

void RequireBelow1(std::string_view who, std::string_view name,
                   std::string_view range, double x, double least, bool in_32) {
  const bool below = x >= least && std::abs(x) < 1;
  if (below && (!in_32 || std::abs(static_cast<float>(x)) < 1)) return;
  throw Error(
      Code::kInvalidArgument,
      fmt::format(
          "{}: wanted a {} in {}, got {}{}", who, name, range, x,
          below ? fmt::format(", which is {} in float32", static_cast<float>(x))
                : ""));
}

}  // namespace

void RequireFinite(std::string_view who, std::string_view name, double x) {
  if (IsFinite(x)) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: wanted a finite {}, got {}", who, name, x));
}

void RequireFactor(std::string_view who, std::string_view name, double x) {
  if (IsFactor(x)) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: wanted a finite {} that is not negative, got {}",
                          who, name, x));
}

void RequireFraction(std::string_view who, std::string_view name, double x) {
  RequireBelow1(who, name, "[0, 1)", x, 0, false);
}

void RequireFraction32(std::string_view who, std::string_view name, double x) {
  RequireBelow1(who, name, "[0, 1)", x, 0, true);
}

void RequireSigned32(std::string_view who, std::string_view name, double x) {
  RequireBelow1(who, name, "(-1, 1)", x, -1, true);
}

}  // namespace sluice
