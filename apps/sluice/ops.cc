#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "apps/sluice/op_text.h"
#include "engine/module.h"
#include "graph/op.h"
#include "graph/text/text_tensor.h"

namespace sluice::tool {
namespace {

// Who computes it, best first: "cpu: simd, reference".
std::string KernelsText(const OpDef& op) {
  std::vector<std::string> parts;
  for (DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    std::vector<std::string> providers;
    for (const KernelDef* kernel : KernelTable::Global().KernelsOf(op.name)) {
      if (kernel->device == device &&
          std::find(providers.begin(), providers.end(), kernel->provider) ==
              providers.end()) {
        providers.push_back(kernel->provider);
      }
    }
    if (!providers.empty()) {
      parts.push_back(
          fmt::format("{}: {}", NameOf(device), fmt::join(providers, ", ")));
    }
  }
  if (parts.empty()) return op.view ? "view" : "-";
  return fmt::format("{}", fmt::join(parts, "; "));
}

// What it computes in where precisions are mixed.
const char* MixedText(const OpDef& op) {
  switch (op.half) {
    case HalfRule::kPrefer:
      return "half";
    case HalfRule::kFollow:
      return "half between ops in half";
    case HalfRule::kFloat32:
      break;
  }
  return "float32";
}

std::vector<std::string> Traits(const OpDef& op) {
  std::vector<std::string> traits;
  const auto add = [&](bool has, const char* name) {
    if (has) traits.emplace_back(name);
  };
  add(op.stateful, "stateful");
  add(op.sink, "sink");
  add(op.commutative, "commutative");
  add(op.elementwise, "elementwise");
  add(op.wait != nullptr, "starts");
  add(op.view, "view");
  add(op.shape_only, "shape_only");
  add(!op.inplace.empty(), "in_place");
  add(op.mutates > 0, "updates_variables");
  return traits;
}

template <typename Args>
Json ArgsJson(const Args& args) {
  Json json = Json::Array();
  for (const ArgDef& arg : args) {
    json.Add({{"name", arg.name},
              {"type", arg.type},
              {"variadic", arg.variadic},
              {"optional", arg.optional}});
  }
  return json;
}

Json OpJson(const OpDef& op) {
  Json json = {{"op", op.name},
               {"doc", op.doc},
               {"inputs", ArgsJson(op.inputs)},
               {"outputs", ArgsJson(op.outputs)},
               {"types", Json::Object()},
               {"attributes", Json::Array()},
               {"gradient", GradientText(op)},
               {"built_by", BuilderText(op)},
               {"mixed_precision", MixedText(op)},
               {"traits", Traits(op)},
               {"kernels", Json::Array()}};
  for (const TypeVar& type : op.types) {
    json["types"][type.name] = DTypeNames(type.allowed);
  }
  for (const AttrDef& attr : op.attrs) {
    Json item = {{"name", attr.name}, {"type", NameOf(attr.type)}};
    if (!attr.required) item["default"] = PrintValue(attr.fallback.ToValue());
    json["attributes"].Add(item);
  }
  for (const KernelDef* kernel : KernelTable::Global().KernelsOf(op.name)) {
    json["kernels"].Add({{"device", NameOf(kernel->device)},
                         {"provider", kernel->provider},
                         {"priority", kernel->priority},
                         {"dtypes", DTypeNames(kernel->dtypes)}});
  }
  return json;
}

void Describe(const OpDef& op) {
  fmt::print("{}({}) -> {}\n  {}\n", op.name, ArgsText(op.inputs),
             ArgsText(op.outputs), op.doc);
  if (!op.types.empty()) fmt::print("  dtypes      {}\n", TypesText(op));
  for (const AttrDef& attr : op.attrs) {
    fmt::print("  attribute   {}\n", AttrText(attr));
  }
  fmt::print("  gradient    {}\n", GradientText(op));
  fmt::print("  built by    {}\n", BuilderText(op));
  fmt::print("  mixed       {}\n", MixedText(op));
  const std::vector<std::string> traits = Traits(op);
  if (!traits.empty()) {
    fmt::print("  traits      {}\n", fmt::join(traits, ", "));
  }
  for (const KernelDef* kernel : KernelTable::Global().KernelsOf(op.name)) {
    fmt::print("  kernel      {} {} (priority {}): {}\n",
               NameOf(kernel->device), kernel->provider, kernel->priority,
               SetText(kernel->dtypes));
  }
}

bool HasKernel(const OpDef& op, DeviceType device) {
  const auto kernels = KernelTable::Global().KernelsOf(op.name);
  return std::any_of(
      kernels.begin(), kernels.end(),
      [&](const KernelDef* kernel) { return kernel->device == device; });
}

// The ops that compute on a CPU and not on a GPU.
std::string LackingText(const std::vector<const OpDef*>& ops) {
  const Status module = LoadModule(DeviceType::kCuda);
  if (!module.ok()) return "GPU kernels are not listed: " + module.message();
  std::vector<std::string_view> lacking;
  for (const OpDef* op : ops) {
    if (HasKernel(*op, DeviceType::kCpu) && !HasKernel(*op, DeviceType::kCuda))
      lacking.push_back(op->name);
  }
  return lacking.empty()
             ? "every op has a GPU kernel"
             : fmt::format("no GPU kernel for {}", fmt::join(lacking, ", "));
}

}  // namespace

void ListOps(const std::string& name, bool json) {
  std::vector<const OpDef*> ops = OpTable::Global().All();
  const std::string lacking = LackingText(ops);  // first: it loads kernels
  if (!name.empty()) ops = {&OpTable::Global().Get(name)};
  if (json) {
    for (const OpDef* op : ops) PrintJson(OpJson(*op));
    return;
  }
  if (!name.empty()) return Describe(*ops[0]);
  fmt::print("{:<30} {:<22} {:<9} {}\n", "OP", "DTYPES", "GRADIENT", "KERNELS");
  for (const OpDef* op : ops) {
    fmt::print("{:<30} {:<22} {:<9} {}\n", op->name, TypesText(*op),
               GradientText(*op), KernelsText(*op));
  }
  fmt::print("{}\n{} ops; `sluice ops NAME` says more of one\n", lacking,
             ops.size());
}

}  // namespace sluice::tool
