// Memory that two processes of one host share, as a ring of slots which one
// fills and the other empties.
//
// The memory has no name (memfd_create(2)): who is given its descriptor has it,
// and it goes with the last that does. It is sealed, so that neither can make
// it smaller under the other.
//
//   offset  size
//        0    64  a text, for both to see that they have the same
//       64    64  filled   slots so far, in its first 4 bytes
//      128    64  freed    the same
//      192    64  taker_sleeps  1: waits for a bell
//      256    64  filler_sleeps
//      320  4*16  bytes of each slot
//     4096        the slots
#ifndef SLUICE_DIST_NET_SHARED_RING_H_
#define SLUICE_DIST_NET_SHARED_RING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// One end of a ring, which fills slots or takes from them. A part is what a
// slot holds at a time; the two ends see the same parts in the same order. One
// thread at a time for each end.
class SharedRing {
 public:
  // Bytes of a slot: few enough for a core's cache to hold what the other end
  // works on.
  static constexpr size_t kSlotBytes = size_t{64} << 10;
  static constexpr uint32_t kSlots = 16;
  static constexpr size_t kTextBytes = 64;

  // Returns the filling end of a new ring, all of its memory allocated, with a
  // text of at most kTextBytes. kResourceExhausted where there is no memory.
  static Result<std::unique_ptr<SharedRing>> Create(std::string_view text);
  // Returns the taking end of a ring whose descriptor another process has sent.
  // kDataLoss where the descriptor is of anything else.
  static Result<std::unique_ptr<SharedRing>> Open(Descriptor memory);
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;
  ~SharedRing();

  // The descriptor of a ring that this end created, until CloseDescriptor: the
  // mapping stays.
  int descriptor() const { return memory_.get(); }
  void CloseDescriptor() { memory_ = Descriptor(); }
  std::string text() const;

  // The filling end's next free slot; empty where all are full.
  MutableBytes Free() const;
  // Gives the first `bytes` of that slot, 1 to kSlotBytes, to the other end;
  // returns whether that end sleeps and wants to be woken.
  bool Fill(size_t bytes);
  // The taking end's oldest part; empty where there is none.
  Bytes Front() const;
  // Gives that part's slot back; returns whether the other end sleeps.
  bool Pop();

  // Says that this end is about to sleep, or no longer is. Between saying so
  // and the sleep the caller must look once more: the other end may have gone
  // on before it could know.
  void SetSleeps(bool sleeps);

 private:
  struct Control;
  SharedRing(Descriptor memory, void* at, bool fills);
  std::byte* Slot(uint32_t i) const;

  Descriptor memory_;
  Control* control_;
  const bool fills_;
  uint32_t next_ = 0;  // slots that this end has filled or freed
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_SHARED_RING_H_
