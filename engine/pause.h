// What a thread does between two looks at what it spins on.
#ifndef SLUICE_ENGINE_PAUSE_H_
#define SLUICE_ENGINE_PAUSE_H_

namespace sluice {

// Tells the core that this is a spin, so that the other thread on it gets the
// room, and holds it back for some tens of cycles. Nothing where the processor
// has no such instruction.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");
#endif
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_PAUSE_H_
