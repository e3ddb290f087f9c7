// Pictures of single digits, made like those of MNIST.
#ifndef SLUICE_APPS_MNIST_PICTURES_H_
#define SLUICE_APPS_MNIST_PICTURES_H_

#include "engine/tensor.h"
#include "io/pipeline/dataset.h"
#include "models/run_context.h"

namespace sluice::mnist {

// uint8 [28,28,1] from uint8 [height,width,3]: grey, the digit white on black
// whatever it was on, shrunk to fit into 20 x 20 pixels and placed so that its
// centre of mass is in the middle (LeCun, Cortes and Burges, "The MNIST
// database", on how NIST's pictures were normalised). A picture of one shade
// stays empty.
Tensor LikeMnist(const Tensor& picture);

// "image" as above and "label" 0 of each of run.files, in their order. What is
// no picture is one of run.bad_examples.
Dataset Pictures(const RunContext& run);

}  // namespace sluice::mnist

#endif  // SLUICE_APPS_MNIST_PICTURES_H_
