// The program of a Fused op: a list of elementwise functions, each of inputs or
// of earlier results. The graph writes it, kernels run it; as text it is an
// attribute:
//
//   program = step { "; " step }
//   step    = function [ parameters ] "(" value { "," value } ")"
//   parameters = "<" number [ "," number ] ">"
//   value   = integer
//
// A value is an input of the node, counted from 0, or, counted on after these,
// the result of a step.
//
// "Mul(0,1); Add(2,3); LeakyRelu<0.1>(4)" is leaky_relu(x0 * x1 + x2) of three
// inputs. Functions are those of engine/semantics/scalar.h, their parameters in
// the order of OpParams, and Select(condition, a, b). Values are of the node's
// dtype, or bool where a comparison made them; between steps, half is float32.
#ifndef SLUICE_ENGINE_SEMANTICS_FUSED_PROGRAM_H_
#define SLUICE_ENGINE_SEMANTICS_FUSED_PROGRAM_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// What the fusion pass makes has at most, and every device's kernels take, so
// that no step is refused for having been fused. So few that on a CPU a tile's
// values stay in the nearest cache; of float64, streamed, twice that.
inline constexpr size_t kMostProgramInputs = 12;
inline constexpr size_t kMostProgramSteps = 48;
inline constexpr size_t kMostProgramOutputs = 6;

struct FusedStep {
  std::string function;
  std::vector<int> operands;
  std::vector<double> params = {};  // up to two
};

struct FusedProgram {
  int inputs = 0;
  std::vector<FusedStep> steps;

  int values() const { return inputs + static_cast<int>(steps.size()); }
  // Whether a value is bool.
  bool IsBool(int value) const;
  std::string ToString() const;
};

// A function's operands and whether its result is bool.
struct FusedFunction {
  int arity = 0;
  int bools = 0;  // how many of the operands, the first ones, are bool
  bool gives_bool = false;
  bool takes_bool() const { return bools > 0; }
};
// Null when there is none of that name.
const FusedFunction* FindFusedFunction(std::string_view name);

// Errors say what is wrong with which step.
Result<FusedProgram> ParseFusedProgram(std::string_view text, int inputs);

}  // namespace sluice

#endif  // SLUICE_ENGINE_SEMANTICS_FUSED_PROGRAM_H_
