// The kernels of SendStart, SendWait, RecvStart and RecvWait: one code for all
// devices, since it is the rendezvous that knows how to reach their memory. On
// the host also of what sends and receives some rows, as many as are counted.
#ifndef SLUICE_ENGINE_RUNTIME_TRANSFER_H_
#define SLUICE_ENGINE_RUNTIME_TRANSFER_H_

#include <cstdint>

#include "engine/kernel.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

struct Edge;

// What a kernel of these does, and of which edge.
struct Transfer {
  enum Call : uint8_t { kSendStart, kSendWait, kRecvStart, kRecvWait };
  Call call = kSendStart;
  const Edge* edge = nullptr;  // the kernel's; null: it is another kernel
};
Transfer TransferOf(const Kernel& kernel);

void RegisterTransferKernels(KernelTable& table, DeviceType device);

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_TRANSFER_H_
