// The kernels of convolutions with OHWI filters, a part of their family.
#ifndef SLUICE_KERNELS_CPU_CONV_CONV_OHWI_H_
#define SLUICE_KERNELS_CPU_CONV_CONV_OHWI_H_

#include "engine/kernel.h"

namespace sluice::cpu {

void RegisterConvOhwiKernels(KernelTable& table);

}  // namespace sluice::cpu

#endif  // SLUICE_KERNELS_CPU_CONV_CONV_OHWI_H_
