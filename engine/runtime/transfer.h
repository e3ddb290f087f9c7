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

// The call that a transfer kernel makes, and its edge.
struct Transfer {
  enum Call : uint8_t { kSendStart, kSendWait, kRecvStart, kRecvWait };
  Call call = kSendStart;
  const Edge* edge = nullptr;  // the kernel's; null: it is another kernel
};
// What these kernels are to others. A program that is linked with the static
// library has kernels of libsluice.so, which libsluice_cuda.so brings along:
// another copy of this code, in which a type without linkage is another type.
class TransferOp : public Kernel {
 public:
  virtual Transfer transfer() const = 0;
};
Transfer TransferOf(const Kernel& kernel);

void RegisterTransferKernels(KernelTable& table, DeviceType device);

}  // namespace sluice

#endif  // SLUICE_ENGINE_RUNTIME_TRANSFER_H_
