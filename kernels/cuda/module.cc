// What libsluice_cuda.so exports. So far it says what it is; it registers no
// kernels, since nothing could run them yet.
#include <cuda_runtime_api.h>

#define SLUICE_STRING_(x) #x
#define SLUICE_STRING(x) SLUICE_STRING_(x)

// The versions of Sluice and, as 1000 major + 10 minor, of the CUDA toolkit
// that the module was built with: "0.1.0 cuda 13000".
extern "C" __attribute__((visibility("default"))) const char*
sluice_cuda_version() {
  return SLUICE_VERSION " cuda " SLUICE_STRING(CUDART_VERSION);
}
