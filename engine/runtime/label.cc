#include "engine/runtime/label.h"

#include <fmt/format.h>

namespace sluice {

std::string InstructionLabel::Who() const {
  return fmt::format("{} '{}'", op, node);
}

Status InstructionLabel::Blame(const Status& status) const {
  if (status.ok()) return {};
  if (location.empty()) return status.WithContext(Who());
  return Status(status.code(),
                fmt::format("{}: {} ({})", Who(), status.message(), location));
}

}  // namespace sluice
