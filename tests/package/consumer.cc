// A user's program: only public headers, found only through the package.
#include <sluice/sluice.h>

#include <cstdio>

int main() {
  const sluice::Tensor ones =
      sluice::Tensor::Full(sluice::DType::kFloat32, sluice::Shape{2, 3}, 1.0);
  std::puts(ones.ToString().c_str());
  return ones.elements() == 6 ? 0 : 1;
}
