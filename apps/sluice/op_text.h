// An op's record as text, for the tool's list and the page of ops.
#ifndef SLUICE_APPS_SLUICE_OP_TEXT_H_
#define SLUICE_APPS_SLUICE_OP_TEXT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace sluice::tool {

std::vector<std::string> DTypeNames(DTypeSet set);
// "floating" for the usual sets, else the dtypes.
std::string SetText(DTypeSet set);
// "T: floating, L: int32|int64", or "-".
std::string TypesText(const OpDef& op);
// "a: T, b: T", with "?" behind optional names and "..." behind variadic types.
std::string ArgsText(std::span<const ArgDef> args);
// "axis: int = 0" or "axis: int (required)".
std::string AttrText(const AttrDef& attr);
// "yes", "none" or "missing".
std::string_view GradientText(const OpDef& op);
// The builder, "gradients" or "the engine".
std::string BuilderText(const OpDef& op);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_OP_TEXT_H_
