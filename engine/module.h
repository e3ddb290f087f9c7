// Loading the libraries of ours that programs do not link to, so that they run
// where what these need is absent: libsluice_cuda.so, the module with all CUDA
// code, and libsluice_mpi.so (dist/mpi/calls.h).
#ifndef SLUICE_ENGINE_MODULE_H_
#define SLUICE_ENGINE_MODULE_H_

#include <map>
#include <string>

#include "engine/accelerator.h"
#include "engine/device_group.h"
#include "engine/kernel.h"
#include "engine/note.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// Libraries of a vendor's that a module opens by itself: for each, by our name
// of it ("cudnn"), the file it is loaded from, or "absent: " and why.
using ModuleLibraries = std::map<std::string, std::string>;

// What the engine hands to a module. Both must be built from the same sources:
// the module compares `build` with its own before it looks at the rest.
struct ModuleHost {
  const char* build = "";
  KernelTable* kernels = nullptr;
  void (*register_accelerators)(DeviceType type,
                                AcceleratorOpener opener) = nullptr;
  void (*register_device_groups)(DeviceType type,
                                 const DeviceGroups* groups) = nullptr;
  // The module sets it to what looks for its libraries.
  ModuleLibraries (**libraries)() = nullptr;
  // For what the module has to say (engine/note.h).
  NoteFunction note = nullptr;
};

// The function that a module exports under this name: registers what it has.
// Returns null, or what is wrong.
inline constexpr const char* kModuleEntry = "sluice_module_load";
using ModuleEntry = const char* (*)(const ModuleHost& host);

// Opens a library of ours, for dlsym. It is looked for beside the program or
// the library that this code is in, in ../lib from there, and where the system
// finds libraries. Unavailable says in one line why not: `absent` where there
// is none.
Result<void*> OpenModule(const std::string& file, const std::string& absent);

// Loads the module for a device type, once per process. Unavailable says in one
// line why not.
Status LoadModule(DeviceType type);

// Loads the module for a device type, if there is one, and looks for its
// libraries. Empty without a module.
ModuleLibraries LibrariesOfModule(DeviceType type);

}  // namespace sluice

#endif  // SLUICE_ENGINE_MODULE_H_
