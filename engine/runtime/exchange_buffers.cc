#include "engine/runtime/exchange_buffers.h"

namespace sluice {

Status CopyOutBeside(Accelerator& accelerator, uint64_t incarnation,
                     const void* from, size_t bytes, void* pinned,
                     TransferMark& produced, TransferMark& copied) {
  constexpr auto kCopyOut = Accelerator::kCopyOut;
  SLUICE_RETURN_IF_ERROR(
      produced.Record(accelerator, incarnation, Accelerator::kCompute));
  SLUICE_RETURN_IF_ERROR(accelerator.Wait(produced.event(), kCopyOut));
  if (bytes > 0) {
    SLUICE_RETURN_IF_ERROR(accelerator.CopyOut(kCopyOut, pinned, from, bytes));
  }
  return copied.Record(accelerator, incarnation, kCopyOut);
}

}  // namespace sluice
