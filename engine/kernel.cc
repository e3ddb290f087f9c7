#include "engine/kernel.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

std::string_view NameOf(DeviceType type) {
  constexpr std::string_view kNames[] = {"cpu", "gpu", "null"};
  return kNames[static_cast<int>(type)];
}

Result<KernelPtr> MakeKernel(const KernelDef& def, const KernelSpec& spec) {
  try {
    return def.make(spec);
  } catch (...) {
    return CaughtStatus();
  }
}

std::string TensorType::ToString() const {
  return std::string(NameOf(dtype)) + shape.ToString();
}

void KernelTable::Register(KernelDef def) {
  MutexLock lock(mutex_);
  auto& kernels = by_op_[def.op];
  // Stable: of equal priorities the first registered wins.
  auto at = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) {
    return k->priority < def.priority;
  });
  kernels.insert(at, std::make_unique<KernelDef>(std::move(def)));
}

std::vector<const KernelDef*> KernelTable::FindAll(const KernelSpec& spec,
                                                   DeviceType device) const {
  const std::vector<TensorType>& keys =
      spec.inputs.empty() ? spec.outputs : spec.inputs;
  std::vector<const KernelDef*> found = KernelsOf(spec.op);
  // Without the lock: `supports` may itself ask the table.
  std::erase_if(found, [&](const KernelDef* kernel) {
    return kernel->device != device ||
           (!keys.empty() && !kernel->dtypes.Contains(keys[0].dtype)) ||
           (kernel->supports && !kernel->supports(spec));
  });
  return found;
}

Result<MadeKernel> KernelTable::Make(const KernelSpec& spec,
                                     DeviceType device) const {
  const std::vector<const KernelDef*> found = FindAll(spec, device);
  if (found.empty()) return Find(spec, device).status();
  MadeKernel made;
  Status first;
  for (const KernelDef* def : found) {
    Result<KernelPtr> kernel = MakeKernel(*def, spec);
    if (kernel.ok()) {
      made.kernel = *std::move(kernel);
      made.def = def;
      return made;
    }
    const Status status =
        kernel.status().WithContext(fmt::format("{} '{}'", spec.op, spec.node));
    if (status.code() != Code::kUnimplemented) return status;
    if (first.ok()) first = status;
    made.refused += fmt::format("{}{}: {}", made.refused.empty() ? "" : "; ",
                                def->provider, kernel.status().message());
  }
  return first;
}

Result<const KernelDef*> KernelTable::Find(const KernelSpec& spec,
                                           DeviceType device) const {
  std::vector<const KernelDef*> found = FindAll(spec, device);
  if (!found.empty()) return found.front();
  std::string types;
  for (auto it = spec.inputs.begin(); it != spec.inputs.end();) {
    const auto other = std::find_if(
        it, spec.inputs.end(), [&](const auto& type) { return type != *it; });
    types += " " + it->ToString();
    // Of hundreds that are alike one is enough.
    if (other - it > 1) types += fmt::format(" x {}", other - it);
    it = other;
  }
  return Unimplemented(
      fmt::format("{} '{}': no {} kernel for inputs{}{}", spec.op, spec.node,
                  NameOf(device), types.empty() ? " (none)" : types,
                  device == DeviceType::kCpu ? "" : "; place it on /cpu:0"));
}

std::vector<const KernelDef*> KernelTable::KernelsOf(
    std::string_view op) const {
  std::vector<const KernelDef*> kernels;
  MutexLock lock(mutex_);
  auto it = by_op_.find(op);
  if (it == by_op_.end()) return kernels;
  for (const auto& kernel : it->second) kernels.push_back(kernel.get());
  return kernels;
}

std::map<std::string, DTypeSet, std::less<>> KernelTable::DTypesByOp(
    DeviceType device) const {
  std::map<std::string, DTypeSet, std::less<>> dtypes;
  MutexLock lock(mutex_);
  for (const auto& [op, kernels] : by_op_) {
    for (const auto& kernel : kernels) {
      if (kernel->device != device) continue;
      DTypeSet& known = dtypes[op];
      known = known | kernel->dtypes;
    }
  }
  return dtypes;
}

}  // namespace sluice
