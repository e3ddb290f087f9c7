#include "kernels/cpu/fused/fused_chain.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace sluice::cpu {
namespace {

using Step = FusedChainStep;
using Place = FusedChainStep::Place;

// Follows the program with one block in registers, that of the last step.
class Linker {
 public:
  Linker(const KernelSpec& spec, const FusedProgram& program,
         const simd::ChainKernels& table)
      : spec_(spec), program_(program), table_(table) {
    places_.resize(program.values());
    chain_.table = &table;
  }

  FusedChain Run() {
    if (!PlaceInputs()) return {};
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      if (!AddStep(program_.steps[s])) return {};
      block_ = program_.inputs + static_cast<int>(s);
      if (!Leaves(block_)) continue;
      Step keep = {.run = table_.keep};
      keep.result = Place::kKept;
      keep.result_index = chain_.blocks++;
      places_[block_] = {Place::kKept, keep.result_index};
      chain_.steps.push_back(keep);
    }
    // Outputs may lie where inputs do, so they are written when all are read.
    const auto& outputs = spec_.attrs.Ints("outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int value = static_cast<int>(outputs[i]);
      if (value != block_ && !LoadBlock(value)) return {};
      Step store;
      store.result = Place::kOutput;
      store.result_index = static_cast<int>(i);
      chain_.steps.push_back(store);
    }
    chain_.steps.push_back({.run = table_.end});
    const bool fits = chain_.steps.size() <= kMostChainSteps &&
                      chain_.blocks <= kMostChainBlocks;
    return fits ? std::move(chain_) : FusedChain();
  }

 private:
  struct Where {
    Place place = Place::kNone;
    int index = 0;
  };

  bool PlaceInputs() {
    const int64_t elements = spec_.attrs.ShapeOf("shape").elements();
    for (int i = 0; i < program_.inputs; ++i) {
      const TensorType& type = spec_.inputs[i];
      if (type.dtype != DType::kFloat32) return false;
      if (type.shape.elements() == elements) {
        places_[i] = {Place::kArray, i};
      } else if (type.shape.elements() == 1) {
        places_[i] = {Place::kScalar, i};
      } else {
        return false;
      }
    }
    return true;
  }

  // Whether a step's result is wanted when it is no longer in registers.
  bool Leaves(int value) const {
    const int next = value - program_.inputs + 1;
    const auto& outputs = spec_.attrs.Ints("outputs");
    const bool output =
        std::find(outputs.begin(), outputs.end(), value) != outputs.end();
    const auto steps = static_cast<int>(program_.steps.size());
    // The last block is written first, but only if it is the first output.
    if (output && (next < steps || outputs[0] != value)) return true;
    for (int s = next; s < steps; ++s) {
      const std::vector<int>& operands = program_.steps[s].operands;
      const auto uses = std::count(operands.begin(), operands.end(), value);
      if (uses > (s == next ? 1 : 0)) return true;
    }
    return false;
  }

  bool LoadBlock(int value) {
    const Where& where = places_[value];
    if (where.place == Place::kNone) return false;
    Step load = {.run = where.place == Place::kScalar ? table_.load_scalar
                                                      : table_.load};
    load.operand = where.place;
    load.operand_index = where.index;
    chain_.steps.push_back(load);
    block_ = value;
    return true;
  }

  bool AddStep(const FusedStep& from) {
    const simd::ChainEntry* end = table_.entries + table_.num_entries;
    const simd::ChainEntry* entry =
        std::find_if(table_.entries, end, [&](const simd::ChainEntry& e) {
          return from.function == std::string_view(e.name);
        });
    const size_t arity = from.operands.size();
    if (entry == end || arity != (entry->unary != nullptr ? 1 : 2)) {
      return false;
    }
    const int a = from.operands[0];
    if (arity == 1) {
      if (a != block_ && !LoadBlock(a)) return false;
      chain_.steps.push_back({.run = entry->unary});
      return true;
    }
    const int b = from.operands[1];
    if (a != block_ && b != block_ && !LoadBlock(a)) return false;
    const bool first = a == block_;
    const Where& other = places_[first ? b : a];
    if (other.place == Place::kNone) return false;
    const bool scalar = other.place == Place::kScalar;
    Step step;
    step.run = first ? (scalar ? entry->with_scalar : entry->with_array)
                     : (scalar ? entry->scalar_with : entry->array_with);
    step.operand = other.place;
    step.operand_index = other.index;
    chain_.steps.push_back(step);
    return true;
  }

  const KernelSpec& spec_;
  const FusedProgram& program_;
  const simd::ChainKernels& table_;
  std::vector<Where> places_;  // of values, beside that in registers
  int block_ = -1;             // the value in registers
  FusedChain chain_;
};

}  // namespace

FusedChain ChainOf(const KernelSpec& spec, const FusedProgram& program,
                   const simd::ChainKernels& table) {
  return Linker(spec, program, table).Run();
}

void RunChain(const FusedChain& chain, const KernelContext& c, bool past,
              int64_t begin, int64_t end) {
  const simd::ChainKernels& table = *chain.table;
  alignas(64) float blocks[kMostChainBlocks * simd::kMostChainBlock];
  std::array<simd::ChainStep, kMostChainSteps> steps;
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    const Step& from = chain.steps[i];
    simd::ChainStep& step = steps[i];
    step.run = from.run != nullptr ? from.run
               : past              ? table.stream
                                   : table.store;
    step.advance = from.operand == Place::kArray ? 1 : 0;
    step.operand = from.operand == Place::kKept
                       ? blocks + from.operand_index * simd::kMostChainBlock
                   : from.operand == Place::kNone
                       ? nullptr
                       : c.input<float>(from.operand_index);
    step.result = from.result == Place::kKept
                      ? blocks + from.result_index * simd::kMostChainBlock
                  : from.result == Place::kOutput
                      ? c.output<float>(from.result_index)
                      : nullptr;
  }
  table.run(steps.data(), begin, end);
}

}  // namespace sluice::cpu
