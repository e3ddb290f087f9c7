// A Plan: one device's part of a step, flat and immutable. It has instructions
// in schedule order, each with its prepared kernel and the locations of its
// operands. A Plan knows nothing of graphs.
#ifndef SLUICE_ENGINE_RUNTIME_PLAN_H_
#define SLUICE_ENGINE_RUNTIME_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/kernel.h"
#include "engine/runtime/label.h"
#include "engine/tensor.h"

namespace sluice {

// The place of an operand's bytes.
struct Location {
  enum class Kind : uint8_t {
    kArena,     // `offset` bytes into the run's arena
    kConstant,  // Plan::constants[index]
    kVariable,  // Plan::variables[index]
    kFeed,      // the step's feed `index`
    kFetch,     // the step's fetch `index`
    kNone,      // no bytes: an operand of size 0
  };
  Kind kind = Kind::kNone;
  uint32_t index = 0;
  size_t offset = 0;
};

struct Instruction {
  uint32_t kernel = 0;  // Plan::kernels
  // Ranges of Plan::locations: inputs, then outputs, then the workspace.
  uint32_t first_location = 0;
  uint16_t num_inputs = 0;
  uint16_t num_outputs = 0;
  // Range of Plan::successors: instructions that must wait for this one.
  uint32_t first_successor = 0;
  uint32_t num_successors = 0;
  uint32_t dependencies = 0;  // how many instructions this one waits for
};

struct Plan {
  std::string device;
  uint64_t seed = 0;  // of the randomness of its kernels
  std::vector<Instruction> instructions;
  std::vector<KernelPtr> kernels;
  std::vector<Location> locations;
  std::vector<uint32_t> successors;
  std::vector<Tensor> constants;  // in the device's memory
  std::vector<Variable*> variables;
  // Indices into `variables`: those that the Plan reads before it writes them,
  // and those that it writes as a whole, so that a run initialises them.
  std::vector<uint32_t> reads;
  std::vector<uint32_t> initializes;
  // Sizes in bytes of the step's feeds and fetches, by index; 0 for those that
  // this Plan does not touch.
  std::vector<size_t> feed_bytes, fetch_bytes;
  size_t arena_bytes = 0;
  size_t arena_lower_bound = 0;  // largest sum of live bytes at any time
  // Work that instruction `start` starts and a later one, `wait`, waits for. A
  // Plan with pending work runs in order, since a wait may need what other
  // devices do after theirs.
  struct Pending {
    uint32_t start = 0, wait = 0;
  };
  std::vector<Pending> pending;
  // One line for each exchange with other workers that runs on this device's
  // own queue, in order (engine/runtime/device_meeting.h).
  std::string exchanges;
  // Whether the Plan is for CheckedRun: no two buffers share memory, each has
  // kAlignment unused bytes before and behind it, and operand_bytes is parallel
  // to locations.
  bool checked = false;
  std::vector<size_t> operand_bytes;
  // Whether memory reuse is among the dependencies, so that instructions may
  // run by dependency count rather than in order.
  bool dataflow = false;

  // For reports, apart from the hot data: a buffer in the arena and its
  // lifetime.
  struct Buffer {
    static constexpr int kWorkspace = -1;
    int instruction = 0;  // that writes it first
    int output = 0;       // of that instruction, or kWorkspace
    size_t bytes = 0;
    size_t offset = 0;
    int last = 0;  // instruction that uses it
  };
  std::vector<Buffer> buffers;

  // For messages and observers, one per instruction.
  std::vector<InstructionLabel> labels;
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_PLAN_H_
