// Observers of a step: which instructions ran when, and their outputs.
#ifndef SLUICE_ENGINE_RUNTIME_TRACE_H_
#define SLUICE_ENGINE_RUNTIME_TRACE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/label.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// Now, in nanoseconds of the steady clock.
int64_t SteadyNowNs();

// An instruction that ran. All of it is valid only during the call.
struct RanInstruction {
  std::string_view device;
  uint32_t position = 0;  // in the device's order
  const InstructionLabel& label;
  int64_t begin_ns = 0, end_ns = 0;  // of SteadyNowNs
  // Its results, of label.outputs; null for an observer that reads none.
  void* const* outputs = nullptr;
};

// Told of every instruction after it ran, by the thread that ran it, so calls
// come concurrently. An error ends the step, and so does what it throws. It
// must not touch the session's variables: the instruction's are locked.
//
// On an accelerator times are of the device's clock, counted back from when
// the step was seen to end, and calls come after that. An observer that reads
// outputs is given copies on the host; each kernel is waited for then, and
// times are of the host's clock.
class Observer {
 public:
  virtual ~Observer() = default;
  // Otherwise it is given no outputs where that would cost time.
  virtual bool reads_outputs() const { return true; }
  virtual Status AfterInstruction(const RanInstruction& ran) = 0;
};

// Collects a trace in the Chrome trace-event format, which Perfetto and
// chrome://tracing open: one process per device, one row per thread.
class ChromeTrace final : public Observer {
 public:
  bool reads_outputs() const override { return false; }
  Status AfterInstruction(const RanInstruction& ran) override;
  // Adds a span of other work in row `row` of the process `process`; the spans
  // of a row must not overlap. Times are of SteadyNowNs.
  void AddSpan(const std::string& process, const std::string& row,
               const std::string& name, int64_t begin_ns, int64_t end_ns);
  // Drops what was collected.
  void Clear();
  // The number of instructions collected.
  size_t events() const;
  std::string ToJson() const;  // the whole file

 private:
  struct Event {
    std::string node, op, device, types;
    int64_t begin_ns, end_ns;
    uint64_t thread;
  };
  struct Span {
    std::string process, row, name;
    int64_t begin_ns, end_ns;
  };
  mutable Mutex mutex_;
  std::vector<Event> events_ GUARDED_BY(mutex_);
  std::vector<Span> spans_ GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_TRACE_H_
