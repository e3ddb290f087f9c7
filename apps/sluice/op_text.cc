#include "apps/sluice/op_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/text/text_tensor.h"

namespace sluice::tool {

std::vector<std::string> DTypeNames(DTypeSet set) {
  std::vector<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (set.Contains(dtype)) names.emplace_back(NameOf(dtype));
  }
  return names;
}

// "floating" for the usual sets, else the dtypes.
std::string SetText(DTypeSet set) {
  if (set == kAnyType) return "any";
  if (set == kNumeric) return "numeric";
  if (set == kFloating) return "floating";
  if (set == kIntegral) return "integer";
  return fmt::format("{}", fmt::join(DTypeNames(set), "|"));
}

std::string TypesText(const OpDef& op) {
  std::string text;
  for (const TypeVar& type : op.types) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", type.name,
                        SetText(type.allowed));
  }
  return text.empty() ? "-" : text;
}

std::string_view GradientText(const OpDef& op) {
  if (op.gradient == nullptr) return "missing";
  return op.gradient == NotDifferentiable ? "none" : "yes";
}

std::string ArgsText(std::span<const ArgDef> args) {
  std::string text;
  for (const ArgDef& arg : args) {
    text += fmt::format("{}{}{}: {}{}", text.empty() ? "" : ", ", arg.name,
                        arg.optional ? "?" : "", arg.type,
                        arg.variadic ? "..." : "");
  }
  return text;
}

std::string AttrText(const AttrDef& attr) {
  return fmt::format("{}: {}{}", attr.name, NameOf(attr.type),
                     attr.required
                         ? " (required)"
                         : " = " + PrintValue(attr.fallback.ToValue()));
}

std::string BuilderText(const OpDef& op) {
  switch (op.made_by) {
    case MadeBy::kGradients:
      return "gradients";
    case MadeBy::kEngine:
      return "the engine";
    case MadeBy::kUsers:
      break;
  }
  return op.builder != nullptr ? op.builder : op.name;
}

}  // namespace sluice::tool
