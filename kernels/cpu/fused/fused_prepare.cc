// Chooses the loops of a fused program and gives its values places.
#include <algorithm>

#include "engine/semantics/fused_program.h"
#include "kernels/cpu/fused/fused.h"
#include "kernels/cpu/streaming.h"

namespace sluice::cpu {
namespace {

// Assigns registers: a value's is free after its last use.
class Registers {
 public:
  int Take() {
    if (free_.empty()) return count_++;
    const int reg = free_.back();
    free_.pop_back();
    return reg;
  }
  void Give(int reg) { free_.push_back(reg); }
  int count() const { return count_; }

 private:
  std::vector<int> free_;
  int count_ = 0;
};

class Compiler {
 public:
  Compiler(const KernelSpec& spec, FusedProgram program,
           const simd::SimdKernels& table)
      : spec_(spec), program_(std::move(program)), table_(table) {
    values_.resize(program_.values());
  }

  Result<PreparedProgram> Run() {
    const Shape& shape = spec_.attrs.ShapeOf("shape");
    const DType dtype = spec_.inputs[0].dtype;
    p_.elements = shape.elements();
    p_.element_size = static_cast<int64_t>(SizeOf(dtype));
    p_.outputs = static_cast<int>(spec_.outputs.size());
    if (dtype == DType::kFloat32) {
      p_.select = [](const void* c, const void* a, const void* b, void* y,
                     int64_t n) {
        Simd().select_f32(
            static_cast<const bool*>(c), static_cast<const float*>(a),
            static_cast<const float*>(b), static_cast<float*>(y), n);
      };
    } else {
      p_.select = [](const void* c, const void* a, const void* b, void* y,
                     int64_t n) {
        Simd().select_f64(
            static_cast<const bool*>(c), static_cast<const double*>(a),
            static_cast<const double*>(b), static_cast<double*>(y), n);
      };
    }
    FindLastUses();
    PlaceInputs(shape);
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      SLUICE_RETURN_IF_ERROR(AddStep(static_cast<int>(s), dtype));
    }
    if (registers_.count() > kMostFusedRegisters) {
      return InvalidArgument("the program needs too many registers");
    }
    p_.registers = std::max(registers_.count(), 1);
    p_.stream =
        p_.element_size * p_.elements >= static_cast<int64_t>(kStreamedBytes);
    // Streamed, a tile shares the cache with the ones before and after it.
    const int64_t banks = p_.stream ? 2 : 1;
    p_.tile = std::clamp(kFusedScratchBytes / banks / p_.registers /
                             p_.element_size / kFusedTileUnit * kFusedTileUnit,
                         kFusedTileUnit, kMostFusedTile / banks);
    // Large tensors in longer pieces, which memory likes better.
    p_.grain = std::clamp(p_.elements / 64 / kMostFusedTile * kMostFusedTile,
                          kElementwiseGrain, int64_t{1} << 18);
    PrepareSum();
    if (!HasSum()) p_.chain = ChainOf(spec_, program_, table_.chain);
    return std::move(p_);
  }

 private:
  struct Value {
    FusedPlace place;
    int last_use = -1;  // step; the number of steps: at the tile's end
  };

  void FindLastUses() {
    const auto& outputs = spec_.attrs.Ints("outputs");
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      for (int v : program_.steps[s].operands) {
        values_[v].last_use = static_cast<int>(s);
      }
    }
    for (int64_t v : outputs) {
      values_[v].last_use = static_cast<int>(program_.steps.size());
    }
  }

  bool HasSum() const { return spec_.attrs.Has("sum"); }

  void PrepareSum() {
    if (!HasSum()) return;
    const int64_t results = spec_.outputs.back().shape.elements();
    const bool leading = spec_.attrs.String("sum") == "leading";
    p_.sum = leading ? PreparedProgram::Sum::kLeading
                     : PreparedProgram::Sum::kTrailing;
    p_.sum_scale = spec_.attrs.Float("sum_scale");
    p_.sum_register = values_[spec_.attrs.Ints("outputs").back()].place.index;
    p_.row_elements =
        leading ? results : std::max<int64_t>(p_.elements / results, 1);
    if (p_.row_elements <= p_.tile) {
      p_.tile = p_.tile / p_.row_elements * p_.row_elements;
    }
    // A piece adds up what its tiles come to one after another; of very many
    // the last digits would be lost. Those of rows it adds up in double.
    if (leading || p_.element_size == sizeof(double)) {
      constexpr int64_t kMostTiles = 64;
      p_.grain = std::min(p_.grain, kMostTiles * p_.tile);
    }
    if (leading) {
      // Rows enough that a piece's own sums are little beside them.
      const int64_t rows = std::max<int64_t>(p_.grain / results, 32);
      p_.grain = rows * results;
    } else if (p_.row_elements <= p_.grain) {
      p_.grain = p_.grain / p_.row_elements * p_.row_elements;
    }
    // Tiles must begin at cache lines to be stored past the caches.
    p_.stream &= p_.row_elements * p_.element_size % 64 == 0;
  }

  // Whether an input of one element always meets an array in a binary step.
  bool OnlyBesideArrays(int input) const {
    for (const FusedStep& step : program_.steps) {
      if (std::count(step.operands.begin(), step.operands.end(), input) == 0) {
        continue;
      }
      if (step.operands.size() != 2 || step.operands[0] == step.operands[1]) {
        return false;
      }
      const int other = step.operands[step.operands[0] == input ? 1 : 0];
      const bool array =
          other >= program_.inputs || spec_.inputs[other].shape.elements() != 1;
      if (!array) return false;
    }
    return true;
  }

  void PlaceInputs(const Shape& shape) {
    for (int i = 0; i < program_.inputs; ++i) {
      const int64_t elements = spec_.inputs[i].shape.elements();
      if (elements == p_.elements && elements != 1) {
        values_[i].place = {FusedPlace::Kind::kInput, i};
        p_.arrays.push_back(i);
      } else if (elements == 1 && OnlyBesideArrays(i)) {
        values_[i].place = {FusedPlace::Kind::kScalar, i};
      } else {
        const int reg = registers_.Take();
        values_[i].place = {FusedPlace::Kind::kRegister, reg};
        p_.repeated.push_back(
            {i, reg, Broadcast(shape, std::span(&spec_.inputs[i], 1))});
      }
    }
  }

  Status AddStep(int s, DType dtype) {
    const FusedStep& from = program_.steps[s];
    const FusedFunction& function = *FindFusedFunction(from.function);
    FusedLoop step;
    for (size_t i = 0; i < from.operands.size(); ++i) {
      step.operands[i] = values_[from.operands[i]].place;
    }
    if (!from.params.empty()) step.params.a = from.params[0];
    if (from.params.size() > 1) step.params.b = from.params[1];
    SLUICE_RETURN_IF_ERROR(ChooseLoop(from, function, dtype, &step));

    const int value = program_.inputs + s;
    const bool last = s + 1 == static_cast<int>(program_.steps.size());
    const auto& outputs = spec_.attrs.Ints("outputs");
    const auto plain = outputs.end() - (HasSum() ? 1 : 0);
    const auto output = std::find(outputs.begin(), plain, value);
    const bool summed = HasSum() && outputs.back() == value;
    const bool straight =
        last && !summed && output == outputs.begin() && output != plain &&
        p_.element_size * p_.elements < static_cast<int64_t>(kStreamedBytes);
    // Loops may work in place, but not between elements of different sizes.
    const bool in_place = !function.takes_bool() && !function.gives_bool;
    if (in_place) GiveBack(s);
    step.result = straight ? -1 : registers_.Take();
    if (!in_place) GiveBack(s);
    values_[value].place = {FusedPlace::Kind::kRegister, step.result};
    if (output != plain && !straight) {
      p_.kept.push_back(
          {static_cast<int>(output - outputs.begin()), step.result});
    }
    p_.steps.push_back(step);
    return {};
  }

  // Frees the registers of operands that step s is the last to use.
  void GiveBack(int s) {
    std::vector<int> operands = program_.steps[s].operands;
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()),
                   operands.end());
    for (int v : operands) {
      const Value& value = values_[v];
      if (value.last_use == s &&
          value.place.kind == FusedPlace::Kind::kRegister) {
        registers_.Give(value.place.index);
      }
    }
  }

  Status ChooseLoop(const FusedStep& from, const FusedFunction& function,
                    DType dtype, FusedLoop* step) const {
    if (from.function == "Select") {
      step->kind = FusedLoop::Kind::kSelect;
      return {};
    }
    if (function.takes_bool()) {
      step->kind = FusedLoop::Kind::kLogical;
      step->logical = from.function == "LogicalNot"   ? '!'
                      : from.function == "LogicalAnd" ? '&'
                      : from.function == "LogicalOr"  ? '|'
                                                      : '^';
      return {};
    }
    if (function.arity == 1) {
      step->unary = FindUnary(table_, from.function.c_str(), dtype);
    } else {
      const simd::BinaryFns fns =
          FindBinary(table_, from.function.c_str(), dtype);
      step->kind = FusedLoop::Kind::kBinary;
      const bool a = step->operands[0].kind != FusedPlace::Kind::kScalar;
      const bool b = step->operands[1].kind != FusedPlace::Kind::kScalar;
      step->binary = a && b ? fns.vector_vector
                     : a    ? fns.vector_scalar
                            : fns.scalar_vector;
    }
    if (step->unary == nullptr && step->binary == nullptr) {
      return Unimplemented("no loop for " + from.function);
    }
    return {};
  }

  const KernelSpec& spec_;
  const FusedProgram program_;
  const simd::SimdKernels& table_;
  std::vector<Value> values_;
  Registers registers_;
  PreparedProgram p_;
};

}  // namespace

Result<PreparedProgram> PrepareProgram(const KernelSpec& spec,
                                       const simd::SimdKernels& table) {
  SLUICE_ASSIGN_OR_RETURN(
      FusedProgram program,
      ParseFusedProgram(spec.attrs.String("program"),
                        static_cast<int>(spec.inputs.size())));
  return Compiler(spec, std::move(program), table).Run();
}

}  // namespace sluice::cpu
