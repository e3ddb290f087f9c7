// The page of all ops, docs/ops.md, from their records.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "apps/sluice/commands.h"
#include "apps/sluice/op_text.h"

namespace sluice::tool {
namespace {

constexpr const char* kHead =
    R"(<!-- Made by `sluice ops --markdown > docs/ops.md`; a test compares. -->
# Ops

Every op, from its record (`OpDef` in `graph/op.h`). `sluice ops NAME` says the
rest: its kernels and traits, and what it computes in where precisions are mixed.

Inputs and outputs are written `name: type`. A type is a variable (`T`), whose
dtypes are listed, a dtype, or an attribute that names one. `name?` may be left
out, `type...` stands for one operand or more. `compute T` is float32 where `T` is
half and else `T`; `T or half` is `T`, float16 or bfloat16. An attribute is written
with its type and its default. Sets of dtypes:

)";

constexpr const char* kUsers = R"(
## Ops with a builder

The builder is the function that adds the op to a graph, declared in `graph/ops/`,
or a method of `Graph`. Of the methods `Graph::Constant` alone is not called as its
op, `Const`, of which printed graphs are full.
)";
constexpr const char* kGradients = R"(
## Ops of gradients

Gradients of other ops add these; there is no builder.
)";
constexpr const char* kEngine = R"(
## Ops of the engine

Passes, recomputation and sessions add these; there is no builder.
)";

// Without what Markdown takes for markup.
std::string Plain(std::string_view text) {
  std::string plain;
  for (char c : text) {
    if (std::string_view("*_<>[]").find(c) != std::string_view::npos) {
      plain += '\\';
    }
    plain += c;
  }
  return plain;
}

std::string Line(std::string_view what, std::string_view code) {
  return code.empty() ? fmt::format("- {}: none\n", what)
                      : fmt::format("- {}: `{}`\n", what, code);
}

std::string Section(const OpDef& op) {
  std::string text = fmt::format("\n### {}\n\n{}\n\n", op.name, Plain(op.doc));
  text += Line("inputs", ArgsText({op.inputs.begin(), op.inputs.end()}));
  text += Line("outputs", ArgsText({op.outputs.begin(), op.outputs.end()}));
  for (const AttrDef& attr : op.attrs)
    text += Line("attribute", AttrText(attr));
  if (!op.types.empty()) text += Line("dtypes", TypesText(op));
  text += fmt::format("- differentiable: {}\n",
                      op.gradient == NotDifferentiable ? "no" : "yes");
  if (op.made_by == MadeBy::kUsers) text += Line("builder", BuilderText(op));
  return text;
}

}  // namespace

std::string OpsPage() {
  std::string page = kHead;
  for (DTypeSet set : {kFloating, kIntegral, kNumeric, kAnyType}) {
    page += fmt::format("- {}: {}\n", SetText(set),
                        fmt::join(DTypeNames(set), ", "));
  }
  const std::vector<const OpDef*> ops = OpTable::Global().All();
  const auto add = [&](const char* head, MadeBy made_by) {
    page += head;
    for (const OpDef* op : ops) {
      if (op->made_by == made_by) page += Section(*op);
    }
  };
  add(kUsers, MadeBy::kUsers);
  add(kGradients, MadeBy::kGradients);
  add(kEngine, MadeBy::kEngine);
  return page;
}

}  // namespace sluice::tool
