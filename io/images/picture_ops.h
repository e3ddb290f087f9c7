// The operations of augmentation on pictures, in Pillow's arithmetic: the bytes
// are those that torchvision's functions of the same names make of a PIL image,
// unless the compiler makes one operation of a * b + c, as GCC does on aarch64:
// then some are next to them.
#ifndef SLUICE_IO_IMAGES_PICTURE_OPS_H_
#define SLUICE_IO_IMAGES_PICTURE_OPS_H_

#include "engine/tensor.h"

namespace sluice {

// In all functions below images are uint8 [height,width,3], red, green and
// blue, of any size, and results are of the same size. Numbers must be finite,
// factors below a million.

// Image.blend of a degenerate image and the image: 0 gives the degenerate one,
// 1 the image, a factor above goes further away from the degenerate one. That
// is black; the mean grey; the image in grey; the image smoothed.
Tensor AdjustBrightness(const Tensor& image, double factor);
Tensor AdjustContrast(const Tensor& image, double factor);
Tensor AdjustSaturation(const Tensor& image, double factor);
Tensor AdjustSharpness(const Tensor& image, double factor);
// Turns the hue by that part of the circle, -0.5 to 0.5, in steps of 1/255.
// Goes through HSV in bytes, so that 0 too changes colours by some levels.
Tensor AdjustHue(const Tensor& image, double factor);

// Keeps the highest bits, 0 to 8, of every byte.
Tensor Posterize(const Tensor& image, int bits);
// Inverts the bytes that are not below the threshold.
Tensor Solarize(const Tensor& image, double threshold);
// Stretches each channel to the whole of 0 to 255.
Tensor AutoContrast(const Tensor& image);
// Makes each channel's histogram as flat as can be.
Tensor Equalize(const Tensor& image);

// The functions below move pixels, to the nearest one; pixels from outside the
// image are 0. Positions count in 1/65536 of a pixel, as Pillow's do below
// 32,768 pixels.

// New pixel (x, y) is the old one at x + slope * y, or y + slope * x. So the
// picture moves the other way for a positive slope; the upper left corner
// stays.
Tensor ShearX(const Tensor& image, double slope);
Tensor ShearY(const Tensor& image, double slope);
// Moves the image by that many pixels to the right and down.
Tensor Translate(const Tensor& image, int64_t right, int64_t down);
// Turns the image counterclockwise about the centre.
Tensor Rotate(const Tensor& image, double degrees);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_PICTURE_OPS_H_
