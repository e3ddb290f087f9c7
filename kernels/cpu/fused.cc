// Fused programs. The elements are cut into tiles that stay in the nearest
// cache; each step of the program is one call of a vector loop over a tile. A
// tile's inputs are fetched while the one before is computed, and results too
// large for the caches are stored past them, so that a chain of cheap steps
// moves as many bytes as a copy.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "engine/fused_program.h"
#include "engine/threads.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/streaming.h"

namespace sluice::cpu {
namespace {

// Where a step finds an operand.
struct Place {
  enum class Kind : uint8_t {
    kRegister,  // a tile in scratch memory
    kInput,     // an array, element by element
    kScalar,    // an input of one element
  };
  Kind kind = Kind::kRegister;
  int index = 0;
};

struct Step {
  enum class Kind : uint8_t { kUnary, kBinary, kSelect, kLogical };
  Kind kind = Kind::kUnary;
  simd::UnaryFn unary = nullptr;
  simd::BinaryFn binary = nullptr;
  char logical = 0;  // '!', '&', '|' or '^'
  simd::OpParams params;
  std::array<Place, 3> operands;
  int result = 0;  // a register; -1: straight to output 0
};

// An input that repeats, laid out for each tile.
struct Repeated {
  int input = 0;
  int reg = 0;
  Broadcast broadcast;
};

// An output that is copied from a register at a tile's end.
struct Kept {
  int output = 0;
  int reg = 0;
};

// Scratch memory of one thread, on its stack: about the nearest cache.
constexpr int64_t kScratchBytes = 32 << 10;
constexpr int kMostRegisters = 32;
constexpr int64_t kMostTile = 2048;
constexpr int64_t kTileUnit = 64;  // elements: whole cache lines

struct Prepared {
  int64_t elements = 0;
  int64_t element_size = 0;
  int64_t tile = 0;
  int64_t grain = 0;
  std::vector<Step> steps;
  std::vector<Repeated> repeated;
  std::vector<int> arrays;  // inputs read element by element
  std::vector<Kept> kept;
  int outputs = 0;
  bool stream = false;
  void (*select)(const void* c, const void* a, const void* b, void* y,
                 int64_t n) = nullptr;
};

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

  Result<Prepared> Run() {
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
    if (registers_.count() > kMostRegisters) {
      return InvalidArgument("the program needs too many registers");
    }
    const int64_t registers = std::max(registers_.count(), 1);
    p_.tile = std::clamp(
        kScratchBytes / registers / p_.element_size / kTileUnit * kTileUnit,
        kTileUnit, kMostTile);
    // Large tensors in longer pieces, which memory likes better.
    p_.grain = std::clamp(p_.elements / 64 / kMostTile * kMostTile,
                          kElementwiseGrain, int64_t{1} << 18);
    p_.stream =
        p_.element_size * p_.elements >= static_cast<int64_t>(kStreamedBytes);
    return std::move(p_);
  }

 private:
  struct Value {
    Place place;
    int last_use = -1;  // step; the number of steps: at the tile's end
    bool output = false;
  };

  void FindLastUses() {
    const auto& outputs = spec_.attrs.Ints("outputs");
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      for (int v : program_.steps[s].operands) {
        values_[v].last_use = static_cast<int>(s);
      }
    }
    for (int64_t v : outputs) {
      values_[v].output = true;
      values_[v].last_use = static_cast<int>(program_.steps.size());
    }
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
        values_[i].place = {Place::Kind::kInput, i};
        p_.arrays.push_back(i);
      } else if (elements == 1 && OnlyBesideArrays(i)) {
        values_[i].place = {Place::Kind::kScalar, i};
      } else {
        const int reg = registers_.Take();
        values_[i].place = {Place::Kind::kRegister, reg};
        p_.repeated.push_back(
            {i, reg, Broadcast(shape, std::span(&spec_.inputs[i], 1))});
      }
    }
  }

  Status AddStep(int s, DType dtype) {
    const FusedStep& from = program_.steps[s];
    const FusedFunction& function = *FindFusedFunction(from.function);
    Step step;
    for (size_t i = 0; i < from.operands.size(); ++i) {
      step.operands[i] = values_[from.operands[i]].place;
    }
    if (!from.params.empty()) step.params.a = from.params[0];
    if (from.params.size() > 1) step.params.b = from.params[1];
    SLUICE_RETURN_IF_ERROR(ChooseLoop(from, function, dtype, &step));

    const int value = program_.inputs + s;
    const bool last = s + 1 == static_cast<int>(program_.steps.size());
    const bool straight =
        last && spec_.attrs.Ints("outputs")[0] == value &&
        p_.element_size * p_.elements < static_cast<int64_t>(kStreamedBytes);
    // Loops may work in place, but not between elements of different sizes.
    const bool in_place = !function.takes_bool && !function.gives_bool;
    if (in_place) GiveBack(s);
    step.result = straight ? -1 : registers_.Take();
    if (!in_place) GiveBack(s);
    values_[value].place = {Place::Kind::kRegister, step.result};
    if (values_[value].output && !straight) {
      const auto& outputs = spec_.attrs.Ints("outputs");
      const auto at = std::find(outputs.begin(), outputs.end(), value);
      p_.kept.push_back({static_cast<int>(at - outputs.begin()), step.result});
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
      if (value.last_use == s && value.place.kind == Place::Kind::kRegister) {
        registers_.Give(value.place.index);
      }
    }
  }

  Status ChooseLoop(const FusedStep& from, const FusedFunction& function,
                    DType dtype, Step* step) const {
    if (from.function == "Select") {
      step->kind = Step::Kind::kSelect;
      return {};
    }
    if (function.takes_bool) {
      step->kind = Step::Kind::kLogical;
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
      step->kind = Step::Kind::kBinary;
      const bool a = step->operands[0].kind != Place::Kind::kScalar;
      const bool b = step->operands[1].kind != Place::Kind::kScalar;
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
  Prepared p_;
};

void RunLogical(char op, const bool* a, const bool* b, bool* y, int64_t n) {
  switch (op) {
    case '!':
      for (int64_t i = 0; i < n; ++i) y[i] = !a[i];
      break;
    case '&':
      for (int64_t i = 0; i < n; ++i) y[i] = (a[i] & b[i]) != 0;
      break;
    case '|':
      for (int64_t i = 0; i < n; ++i) y[i] = (a[i] | b[i]) != 0;
      break;
    default:
      for (int64_t i = 0; i < n; ++i) y[i] = a[i] != b[i];
  }
}

// One piece of the elements, tile by tile.
class Piece {
 public:
  Piece(const Prepared& p, const KernelContext& c) : p_(p), c_(c) {
    stride_ = p.tile * p.element_size;
    stream_ = p.stream;
    for (int i = 0; i < p.outputs && stream_; ++i) {
      stream_ = reinterpret_cast<uintptr_t>(c.output<char>(i)) % 64 == 0;
    }
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += p_.tile) {
      const int64_t n = std::min(p_.tile, end - at);
      for (const Repeated& repeated : p_.repeated) LayOut(repeated, at, n);
      const int64_t next = std::min(p_.tile, end - at - n);
      const int64_t count = static_cast<int64_t>(p_.steps.size());
      for (int64_t s = 0; s < count; ++s) {
        // A share of the next tile's lines, so that they arrive meanwhile.
        Fetch(at + n + next * s / count, at + n + next * (s + 1) / count);
        RunStep(p_.steps[s], at, n);
      }
      for (const Kept& kept : p_.kept) Store(kept, at, n);
    }
  }

 private:
  char* Register(int i) { return scratch_ + i * stride_; }

  const char* Find(const Place& place, int64_t at) {
    switch (place.kind) {
      case Place::Kind::kRegister:
        return Register(place.index);
      case Place::Kind::kInput:
        return c_.input<char>(place.index) + at * p_.element_size;
      case Place::Kind::kScalar:
        break;
    }
    return c_.input<char>(place.index);
  }

  void LayOut(const Repeated& repeated, int64_t at, int64_t n) {
    const int64_t size = p_.element_size;
    const char* from = c_.input<char>(repeated.input);
    char* to = Register(repeated.reg);
    repeated.broadcast.ForEachRun(
        at, at + n,
        [&](const Broadcast::Offsets& offset, int64_t y, int64_t count) {
          const char* in = from + offset[0] * size;
          char* out = to + (y - at) * size;
          if (repeated.broadcast.step(0) == 1) {
            std::memcpy(out, in, static_cast<size_t>(count * size));
          } else if (size == sizeof(float)) {
            std::fill_n(reinterpret_cast<float*>(out), count,
                        *reinterpret_cast<const float*>(in));
          } else {
            std::fill_n(reinterpret_cast<double*>(out), count,
                        *reinterpret_cast<const double*>(in));
          }
        });
  }

  void Fetch(int64_t begin, int64_t end) {
    constexpr int64_t kLine = 64;
    for (int i : p_.arrays) {
      const char* in = c_.input<char>(i);
      for (int64_t at = begin * p_.element_size; at < end * p_.element_size;
           at += kLine) {
        __builtin_prefetch(in + at);
      }
    }
  }

  void RunStep(const Step& step, int64_t at, int64_t n) {
    const char* a = Find(step.operands[0], at);
    char* y = step.result < 0 ? c_.output<char>(0) + at * p_.element_size
                              : Register(step.result);
    switch (step.kind) {
      case Step::Kind::kUnary:
        return step.unary(a, y, n, step.params);
      case Step::Kind::kBinary:
        return step.binary(a, Find(step.operands[1], at), y, n, step.params);
      case Step::Kind::kSelect:
        return p_.select(a, Find(step.operands[1], at),
                         Find(step.operands[2], at), y, n);
      case Step::Kind::kLogical:
        return RunLogical(
            step.logical, reinterpret_cast<const bool*>(a),
            reinterpret_cast<const bool*>(Find(step.operands[1], at)),
            reinterpret_cast<bool*>(y), n);
    }
  }

  void Store(const Kept& kept, int64_t at, int64_t n) {
    char* out = c_.output<char>(kept.output) + at * p_.element_size;
    if (stream_) {
      Simd().stream(reinterpret_cast<const float*>(Register(kept.reg)),
                    reinterpret_cast<float*>(out),
                    n * p_.element_size / static_cast<int64_t>(sizeof(float)));
    } else {
      std::memcpy(out, Register(kept.reg),
                  static_cast<size_t>(n * p_.element_size));
    }
  }

  const Prepared& p_;
  const KernelContext& c_;
  int64_t stride_ = 0;
  bool stream_ = false;
  alignas(64) char scratch_[std::max<int64_t>(
      kScratchBytes, kMostRegisters* kTileUnit * sizeof(double))];
};

Result<KernelPtr> MakeFused(const KernelSpec& spec,
                            const simd::SimdKernels& table) {
  SLUICE_ASSIGN_OR_RETURN(
      FusedProgram program,
      ParseFusedProgram(spec.attrs.String("program"),
                        static_cast<int>(spec.inputs.size())));
  SLUICE_ASSIGN_OR_RETURN(const Prepared prepared,
                          Compiler(spec, std::move(program), table).Run());
  return KernelOf([prepared](const KernelContext& c) {
    ParallelFor(prepared.elements, prepared.grain,
                [&](int64_t begin, int64_t end) {
                  Piece(prepared, c).Run(begin, end);
                });
  });
}

}  // namespace

void RegisterFusedKernels(KernelTable& table) {
  table.Register({.op = "Fused",
                  .dtypes = kFloatDouble,
                  .make = [](const KernelSpec& spec) {
                    return MakeFused(spec, *SimdFor("baseline"));
                  }});
  table.Register(
      {.op = "Fused",
       .priority = 10,
       .provider = "simd",
       .dtypes = kFloatDouble,
       .make = [](const KernelSpec& spec) { return MakeFused(spec, Simd()); }});
}

}  // namespace sluice::cpu
