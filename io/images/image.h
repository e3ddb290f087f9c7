// Images from JPEG and PNG files, and what makes them fit a network.
#ifndef SLUICE_IO_IMAGES_IMAGE_H_
#define SLUICE_IO_IMAGES_IMAGE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "io/files/file.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

// How an image's file is read.
struct DecodeOptions {
  // Whether to turn and mirror a JPEG or a PNG as the Orientation in its Exif
  // data says, as Pillow's ImageOps.exif_transpose does. If not, and where
  // there is none or it is damaged, pixels stay where the file has them, as
  // PIL, torchvision and TensorFlow leave them.
  bool exif = false;
};

// Reads an image as uint8 [height,width,3], whatever the file has: grey becomes
// three equal channels, transparency is dropped. The bytes decide which format
// it is, not the name. kDataLoss, naming the file, for what is no image, is
// damaged or has more than 100 million pixels; kUnimplemented where the build
// lacks the format's library.
Result<Tensor> ReadImage(const std::string& path,
                         FileSystem& files = FileSystem::Default(),
                         const DecodeOptions& options = {});
// ReadImage of a file's bytes in memory; `path` is only for messages.
Result<Tensor> DecodeImage(std::string_view bytes, const std::string& path,
                           const DecodeOptions& options = {});
// Whether a file's name, without its folder, is that of an image: it ends in
// .jpg, .jpeg or .png, whatever the case, and does not begin with "._", as do
// the files beside them that macOS keeps its own notes in.
bool IsImageName(std::string_view name);

// A rectangle of an image, in pixels.
struct ImagePart {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// In all functions below images are uint8 [height,width,channels].

// Resizes by linear interpolation between pixels; where the image becomes
// smaller, over all pixels that a new one covers. Steps and rounding are those
// of Pillow's BILINEAR, which torchvision's Resize uses.
Tensor Resize(const Tensor& image, int64_t height, int64_t width);
// The rectangle of that corner and size; parts outside the image are 0.
Tensor Crop(const Tensor& image, int64_t top, int64_t left, int64_t height,
            int64_t width);
Tensor FlipHorizontally(const Tensor& image);

// torchvision's Resize(resize) and CenterCrop(crop): the shorter side becomes
// `resize` pixels long, then the middle is cut out.
Tensor ResizeAndCrop(const Tensor& image, int64_t resize, int64_t crop);
// torchvision's Resize(resize) and TenCrop(crop), [10,crop,crop,channels]: the
// corners, the upper left, upper right, lower left and lower right one, the
// middle, and these five of the flipped image, as "ImageNet Classification with
// Deep Convolutional Neural Networks" (Krizhevsky et al., 2012) averages over
// them. Throws Error for a crop that is greater than `resize`.
Tensor ResizeAndTenCrop(const Tensor& image, int64_t resize, int64_t crop);
// The index, in these ten crops, of the middle of the image that is not
// flipped.
inline constexpr int64_t kTenCropMiddle = 4;
// The ranges that a random part is drawn from, evenly: as torchvision's
// RandomResizedCrop and RandomHorizontalFlip, whose defaults these are.
struct RandomCrop {
  double scale_min = 0.08, scale_max = 1;  // of the image's area, over 0
  double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3;  // width to height, by logs
  double flip = 0.5;  // how often it is flipped from left to right
};
// A random part, made side x side and perhaps flipped ("Going Deeper with
// Convolutions", Szegedy et al., 2015). `key` decides (Dataset::MapRandom).
Tensor RandomResizedCrop(const Tensor& image, int64_t side, uint64_t key,
                         const RandomCrop& crop = {});
// The part that RandomResizedCrop takes of an image of rows x columns, and
// whether it is flipped. Where ten draws do not fit it is the middle, as large
// as the ratios allow.
struct RandomPart {
  ImagePart part;
  bool flip = false;
};
RandomPart DrawRandomPart(int64_t rows, int64_t columns, uint64_t key,
                          const RandomCrop& crop = {});
// ResizeAndCrop and RandomResizedCrop of DecodeImage(bytes, path, options), to
// the bit, but of a JPEG little more than the part is decoded. So damage
// outside the part may go unseen, but not that a file was cut off.
Result<Tensor> DecodeResizeAndCrop(std::string_view bytes,
                                   const std::string& path, int64_t resize,
                                   int64_t crop,
                                   const DecodeOptions& options = {});
Result<Tensor> DecodeRandomResizedCrop(std::string_view bytes,
                                       const std::string& path, int64_t side,
                                       uint64_t key,
                                       const DecodeOptions& options = {},
                                       const RandomCrop& crop = {});
// The image padded by `pad` zeros all around, cut to its size again at a random
// place and flipped with probability `flip`, as is usual for CIFAR (He et al.,
// 2015; torchvision's RandomCrop with padding).
Tensor RandomPadCrop(const Tensor& image, int64_t pad, uint64_t key,
                     double flip = 0.5);

// uint8 [..., 3] to float32: (x / 255 - mean) / deviation, by channel.
RowwiseMap Standardize(std::string name, const std::array<double, 3>& mean,
                       const std::array<double, 3>& deviation);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_IMAGE_H_
