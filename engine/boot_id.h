// Which running system this is.
#ifndef SLUICE_ENGINE_BOOT_ID_H_
#define SLUICE_ENGINE_BOOT_ID_H_

#include <string>

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// The running system's identifier, the same in all its containers and on no
// other machine (/proc/sys/kernel/random/boot_id). Empty where it is not known.
std::string BootId();

}  // namespace sluice

#endif  // SLUICE_ENGINE_BOOT_ID_H_
