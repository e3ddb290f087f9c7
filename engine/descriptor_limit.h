// How many descriptors a process may have.
#ifndef SLUICE_ENGINE_DESCRIPTOR_LIMIT_H_
#define SLUICE_ENGINE_DESCRIPTOR_LIMIT_H_

#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

// As many as it may allow itself: the soft limit, usually 1024, is raised to
// the hard one. It is low for the sake of select(2), which nothing here uses;
// children have what they find. For programs that have a connection with each
// of many others.
void RaiseDescriptorLimit();

}  // namespace sluice

#endif  // SLUICE_ENGINE_DESCRIPTOR_LIMIT_H_
