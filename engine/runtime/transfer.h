// The kernels of SendStart, SendWait, RecvStart and RecvWait: one code for all
// devices, since it is the rendezvous that knows how to reach their memory.
#ifndef SLUICE_ENGINE_RUNTIME_TRANSFER_H_
#define SLUICE_ENGINE_RUNTIME_TRANSFER_H_

#include "engine/kernel.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

void RegisterTransferKernels(KernelTable& table, DeviceType device);

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_TRANSFER_H_
