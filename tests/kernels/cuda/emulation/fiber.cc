#include "tests/kernels/cuda/emulation/fiber.h"

#include "tests/support/sanitizers.h"

#ifdef SLUICE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace sluice::cuda::emulation {
namespace {

// Before a switch to a stack. `frames` keeps what the sanitizer knows of this
// one.
void Leave([[maybe_unused]] void** frames, [[maybe_unused]] const void* stack,
           [[maybe_unused]] size_t bytes) {
#ifdef SLUICE_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(frames, stack, bytes);
#endif
}
// After it. Says which stack was left.
void Arrive([[maybe_unused]] void* frames,
            [[maybe_unused]] const void** old_stack,
            [[maybe_unused]] size_t* old_bytes) {
#ifdef SLUICE_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(frames, old_stack, old_bytes);
#endif
}
// Forgets the frames of a function that was abandoned.
void Clear([[maybe_unused]] char* stack, [[maybe_unused]] size_t bytes) {
#ifdef SLUICE_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack, bytes);
#endif
}

}  // namespace

Fiber* Fiber::resumed_ = nullptr;

Fiber::Fiber() : stack_(new char[kStackBytes]) {}
Fiber::~Fiber() {
  Clear(stack_.get(), kStackBytes);
}

void Fiber::Start(const std::function<void()>& function) {
  function_ = &function;
  // One that returned waits in Enter for its next function.
  const bool waits = finished_ && entered_;
  finished_ = false;
  if (waits) return;
  Clear(stack_.get(), kStackBytes);
  entered_ = false;
  own_frames_ = nullptr;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::Enter, 0);
}

// Runs one function after another, since the sanitizer takes long to set up a
// new stack.
void Fiber::Enter() {
  Fiber* fiber = resumed_;
  Arrive(nullptr, &fiber->caller_stack_, &fiber->caller_stack_bytes_);
  fiber->entered_ = true;
  for (;;) {
    (*fiber->function_)();
    fiber->finished_ = true;
    fiber->Stop();
  }
}

void Fiber::Resume() {
  resumed_ = this;
  Leave(&caller_frames_, stack_.get(), kStackBytes);
  swapcontext(&caller_, &context_);
  Arrive(caller_frames_, nullptr, nullptr);
}

void Fiber::Stop() {
  Leave(&own_frames_, caller_stack_, caller_stack_bytes_);
  swapcontext(&context_, &caller_);
  Arrive(own_frames_, &caller_stack_, &caller_stack_bytes_);
}

}  // namespace sluice::cuda::emulation
