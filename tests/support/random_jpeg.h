// JPEG images of all that libjpeg can write: subsampling, baseline and
// progressive, restart markers, grey, CMYK. For builds with libjpeg.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_JPEG_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_JPEG_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
// After cstdio, whose types it uses.
#include <jpeglib.h>

#include "engine/tensor.h"
#include "tests/support/random.h"

namespace sluice::testing {

// How libjpeg is to write an image.
struct Form {
  const char* name;
  J_COLOR_SPACE pixels, stored;
  int channels;
  int sampling[4][2];  // of each component: across, down
};

inline constexpr Form kForms[] = {
    {"4:4:4", JCS_RGB, JCS_YCbCr, 3, {{1, 1}, {1, 1}, {1, 1}}},
    {"4:2:2", JCS_RGB, JCS_YCbCr, 3, {{2, 1}, {1, 1}, {1, 1}}},
    {"4:2:0", JCS_RGB, JCS_YCbCr, 3, {{2, 2}, {1, 1}, {1, 1}}},
    {"4:4:0", JCS_RGB, JCS_YCbCr, 3, {{1, 2}, {1, 1}, {1, 1}}},
    {"4:1:1", JCS_RGB, JCS_YCbCr, 3, {{4, 1}, {1, 1}, {1, 1}}},
    {"4:1:0", JCS_RGB, JCS_YCbCr, 3, {{4, 2}, {1, 1}, {1, 1}}},
    {"2x4", JCS_RGB, JCS_YCbCr, 3, {{2, 4}, {1, 1}, {1, 1}}},
    {"odd one", JCS_RGB, JCS_YCbCr, 3, {{2, 2}, {2, 1}, {1, 2}}},
    {"RGB", JCS_RGB, JCS_RGB, 3, {{1, 1}, {1, 1}, {1, 1}}},
    {"grey", JCS_GRAYSCALE, JCS_GRAYSCALE, 1, {{1, 1}}},
    {"grey 2x2", JCS_GRAYSCALE, JCS_GRAYSCALE, 1, {{2, 2}}},
    {"CMYK", JCS_CMYK, JCS_CMYK, 4, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
    {"YCCK", JCS_CMYK, JCS_YCCK, 4, {{2, 2}, {1, 1}, {1, 1}, {2, 2}}},
};

struct Writing {
  bool progressive = false;
  int scans_left_out = 0;   // of a progressive file, the last
  int scans_each = 0;       // of a component, of one coefficient each, at most
  bool interleaved = true;  // else a scan for each component
  int quality = 75;
  unsigned restart_blocks = 0;  // between markers, 0 for none
  bool thumbnail = false;       // with an end marker of its own, in the header
};

inline void ChooseScans(const Writing& writing, jpeg_compress_struct& info,
                        std::vector<jpeg_scan_info>& scans) {
  if (writing.scans_each > 0) {
    scans.push_back({info.num_components, {0, 1, 2, 3}, 0, 0, 0, 0});
    for (int c = 0; c < info.num_components; ++c) {
      const int last = DCTSIZE2 - 1;
      for (int k = 1; k <= writing.scans_each; ++k) {
        scans.push_back({1, {c}, k, k == writing.scans_each ? last : k, 0, 0});
      }
    }
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  } else if (writing.progressive) {
    jpeg_simple_progression(&info);
    info.num_scans -= std::min(writing.scans_left_out, info.num_scans - 1);
  } else if (!writing.interleaved) {
    for (int c = 0; c < info.num_components; ++c) {
      scans.push_back({1, {c}, 0, DCTSIZE2 - 1, 0, 0});
    }
    info.scan_info = scans.data();
    info.num_scans = info.num_components;
  }
}

inline std::string Encode(const Tensor& image, const Form& form,
                          const Writing& writing) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(image.shape()[0]);
  info.image_width = static_cast<JDIMENSION>(image.shape()[1]);
  info.input_components = form.channels;
  info.in_color_space = form.pixels;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, form.stored);
  jpeg_set_quality(&info, writing.quality, TRUE);
  for (int c = 0; c < info.num_components; ++c) {
    info.comp_info[c].h_samp_factor = form.sampling[c][0];
    info.comp_info[c].v_samp_factor = form.sampling[c][1];
  }
  info.restart_interval = writing.restart_blocks;
  std::vector<jpeg_scan_info> scans;
  ChooseScans(writing, info, scans);
  jpeg_start_compress(&info, TRUE);
  if (writing.thumbnail) {
    const unsigned char picture[] = {0xff, 0xd8, 0xff, 0xd9};
    jpeg_write_marker(&info, JPEG_APP0 + 1, picture, sizeof picture);
  }
  const size_t row_bytes = size_t{info.image_width} * form.channels;
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<unsigned char*>(image.data<uint8_t>()) +
                info.next_scanline * row_bytes;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

// Smooth in places, rough in others, as photographs are.
inline Tensor RandomPicture(Random& random, int64_t height, int64_t width,
                            int64_t channels) {
  Tensor image(DType::kUInt8, {height, width, channels});
  uint8_t* to = image.data<uint8_t>();
  const int64_t slope = random.Between(0, 9), noise = random.Between(0, 90);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t rough = (x / 16 + y / 24) % 2 == 0 ? noise : 3;
        *to++ = static_cast<uint8_t>(slope * (x + y * c) / 2 +
                                     random.Between(0, rough));
      }
    }
  }
  return image;
}

inline Writing RandomWriting(Random& random) {
  Writing writing;
  writing.progressive = random.Chance(3);
  writing.interleaved = !random.Chance(4);
  writing.quality = static_cast<int>(random.Between(30, 95));
  if (random.Chance(3)) {
    writing.restart_blocks = static_cast<unsigned>(random.Between(1, 9));
  }
  writing.thumbnail = random.Chance(4);
  return writing;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_JPEG_H_
