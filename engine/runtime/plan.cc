#include "engine/runtime/plan.h"

#include <fmt/format.h>

namespace sluice {

std::string Plan::Label::Who() const {
  return fmt::format("{} '{}'", op, node);
}

Status Plan::Label::Blame(const Status& status) const {
  if (status.ok()) return {};
  if (location.empty()) return status.WithContext(Who());
  return Status(status.code(),
                fmt::format("{}: {} ({})", Who(), status.message(), location));
}

}  // namespace sluice
