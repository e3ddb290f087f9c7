// Functions that can stop in the middle and go on later, each on a stack of its
// own. The address sanitizer is told of the stacks.
#ifndef SLUICE_TESTS_KERNELS_CUDA_EMULATION_FIBER_H_
#define SLUICE_TESTS_KERNELS_CUDA_EMULATION_FIBER_H_

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace sluice::cuda::emulation {

// Not movable: its context is where it lies. It may be abandoned in the middle
// when nothing on its stack needs a destructor.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes the next Resume begin the function, which must outlive its run.
  void Start(const std::function<void()>& function);
  // Runs it until it stops or returns. Called outside any fiber.
  void Resume();
  // Called by the function: back to Resume.
  void Stop();
  bool finished() const { return finished_; }

 private:
  static void Enter();

  static Fiber* resumed_;  // the last: makecontext passes no pointers

  static constexpr size_t kStackBytes = 64 << 10;
  std::unique_ptr<char[]> stack_;
  ucontext_t context_{};
  ucontext_t caller_{};
  const std::function<void()>* function_ = nullptr;
  bool entered_ = false;
  bool finished_ = true;
  // Of the sanitizer: the fiber's and its caller's.
  void* own_frames_ = nullptr;
  void* caller_frames_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace sluice::cuda::emulation

#endif  // SLUICE_TESTS_KERNELS_CUDA_EMULATION_FIBER_H_
