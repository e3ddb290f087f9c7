// The driver's answers about random parts of pictures, which tests/crosscheck
// compares with torchvision.
#ifndef SLUICE_TESTS_CROSSCHECK_PICTURE_ANSWERS_H_
#define SLUICE_TESTS_CROSSCHECK_PICTURE_ANSWERS_H_

#include <nlohmann/json.hpp>

namespace sluice {

// By what request["do"] is, of a picture of rows x columns pixels, red, green
// and blue, in hexadecimal digits:
//
//   random_crop  {rows, columns, pixels, key, side, scale, ratio, flip}:
//                {draws, part, flipped, pixels}; part is top, left, height and
//                width, `draws` the key's first 32-bit numbers
//   pad_crop     {rows, columns, pixels, key, pad, flip}: {draws, pixels}
//
// Null for other requests.
nlohmann::json PictureAnswer(const nlohmann::json& request);

}  // namespace sluice

#endif  // SLUICE_TESTS_CROSSCHECK_PICTURE_ANSWERS_H_
