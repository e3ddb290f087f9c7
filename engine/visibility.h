// What libsluice.so shows of itself: it is compiled with hidden visibility, and
// a namespace opened with one of these makes what is declared in it visible.
// (g++ does not count friends that only their class declares.)
#ifndef SLUICE_ENGINE_VISIBILITY_H_
#define SLUICE_ENGINE_VISIBILITY_H_

// Headers of cmake/SluicePublicHeaders.cmake: users may rely on it.
#define SLUICE_PUBLIC __attribute__((visibility("default")))

// What programs and modules of the same build use beside that. It is not
// installed, and may be another one in any other build.
#define SLUICE_INTERNAL __attribute__((visibility("default")))

#endif  // SLUICE_ENGINE_VISIBILITY_H_
