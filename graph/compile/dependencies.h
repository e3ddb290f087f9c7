// What each instruction of a Plan waits for, and whether to run by that.
#ifndef SLUICE_GRAPH_COMPILE_DEPENDENCIES_H_
#define SLUICE_GRAPH_COMPILE_DEPENDENCIES_H_

#include <cstddef>
#include <vector>

#include "engine/runtime/plan.h"

namespace sluice {

// For each instruction the positions of those that it waits for, all of which
// come before it in the Plan; in any order, and some may be there twice.
using Waits = std::vector<std::vector<int>>;

// Whether the dataflow executor is worth what it costs: where most of the work
// is in instructions too small to use all threads by themselves, and branches
// could overlap. `bytes`: how many each instruction touches, its cost beside a
// fixed price.
bool DataflowPays(const std::vector<double>& bytes, const Waits& waits);

// A buffer of the arena, from byte `begin` to before `end`, and the positions
// of the instructions that touch it, in order. It is not empty.
struct ArenaUse {
  size_t begin = 0, end = 0;
  const std::vector<int>* touched = nullptr;
};

// Where a buffer is at addresses that others had before, its writer waits for
// everyone who touched those.
void AddReuseWaits(std::vector<ArenaUse> uses, Waits* waits);

// Writes the dependencies and successors of the Plan's instructions, each once.
void WriteDependencies(Waits waits, Plan* plan);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_DEPENDENCIES_H_
