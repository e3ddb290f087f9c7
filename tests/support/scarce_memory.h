// Memory that runs out where a test says so. For one file of a program, whose
// operator new and aligned_alloc it replaces.
#ifndef SLUICE_TESTS_SUPPORT_SCARCE_MEMORY_H_
#define SLUICE_TESTS_SUPPORT_SCARCE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace sluice::testing {

// How many more allocations of this thread, of at least scarce_bytes, there is
// memory for; below 0: all.
inline thread_local int64_t allocations_left = -1;
inline thread_local size_t scarce_bytes = 0;

inline bool IsMemoryFor(size_t bytes) {
  return allocations_left < 0 || bytes < scarce_bytes ||
         allocations_left-- != 0;
}

inline void* NewOrThrow(size_t bytes) {
  if (!IsMemoryFor(bytes)) throw std::bad_alloc();
  void* const p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace sluice::testing

// What AllocateBuffer calls.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* p = nullptr;
  if (!sluice::testing::IsMemoryFor(bytes)) return p;
  return posix_memalign(&p, alignment, bytes) == 0 ? p : nullptr;
}

// All that what is deleted below may come from. Not inlined: g++ would see
// memory of new given to free.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return sluice::testing::NewOrThrow(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes,
                                     const std::nothrow_t&) noexcept {
  try {
    return sluice::testing::NewOrThrow(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

#endif  // SLUICE_TESTS_SUPPORT_SCARCE_MEMORY_H_
