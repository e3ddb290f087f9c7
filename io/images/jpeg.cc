#include "io/images/jpeg.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#if SLUICE_HAVE_JPEG
#include <cstdio>
// After cstdio, whose types they use.
#include <jerror.h>
#include <jpeglib.h>

#include "engine/allocate.h"
#include "engine/catch_errors.h"
#include "io/images/jpeg_errors.h"
#endif

namespace sluice {

bool IsJpeg(std::string_view bytes) {
  return bytes.starts_with("\xff\xd8\xff");
}

#if SLUICE_HAVE_JPEG
namespace {

// Warnings are for what people's photographs are full of; that the data end
// early is an error.
void Warn(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) {
    JpegErrors::Fail(info);
  }
}

// A progressive file may have hundreds of scans of a few bytes, each of which
// takes as long as one of a whole picture, so that some KB would take minutes.
// The usual progression has 10, those of programs that look for the smallest
// file some tens.
constexpr int kMostScans = 100;

// Called for every row of blocks of every scan.
void LimitScans(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kMostScans) return;
  JpegErrors::Fail(info, "it has more than 100 scans");
}

#ifdef LIBJPEG_TURBO_VERSION_NUMBER
constexpr bool kSkips = true;
#else  // The original library cannot: the whole is decoded.
constexpr bool kSkips = false;
void jpeg_crop_scanline(j_decompress_ptr, JDIMENSION*, JDIMENSION*) {}
JDIMENSION jpeg_skip_scanlines(j_decompress_ptr, JDIMENSION) {
  return 0;
}
#endif

// Where the last bytes of a file are looked for its end: some programs leave
// notes behind it.
constexpr size_t kTrailerBytes = 4096;

// Reads the rows of a part from top to bottom: Begin, Start, Read for each of
// the part's rows, Finish. These return false after an error, and then no other
// may be called.
class Decoder {
 public:
  Decoder() {
    info_.err = errors_.manager();
    info_.err->emit_message = Warn;
    scans_.progress_monitor = LimitScans;
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Sets height(), width() and cmyk().
  bool Begin(std::string_view bytes) {
    if (setjmp(errors_.back()) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_create_decompress(&info_);
    info_.progress = &scans_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = cmyk() ? JCS_CMYK : JCS_RGB;
    // Within the image's data these bytes stand for nothing else, but the
    // header may hold a small picture with an end of its own.
    const size_t after = std::min(info_.src->bytes_in_buffer, kTrailerBytes);
    ends_ = bytes.substr(bytes.size() - after).rfind("\xff\xd9") !=
            std::string_view::npos;
    return true;
  }
  // Sets row_bytes() and part_offset().
  bool Start(const ImagePart& part) {
    if (setjmp(errors_.back()) != 0) return false;  // NOLINT(cert-err52-cpp)
    jpeg_start_decompress(&info_);
    left_ = static_cast<JDIMENSION>(part.left);
    if (kSkips && !Smoothed()) {
      CropColumns(part);
      SkipRowsAbove(part);
    }
    scratch_.resize(row_bytes());
    while (info_.output_scanline < part.top) ReadRow(scratch_.data());
    return true;
  }
  bool Read(unsigned char* row) {
    if (setjmp(errors_.back()) != 0) return false;  // NOLINT(cert-err52-cpp)
    ReadRow(row);
    return true;
  }
  // Reads what is below the part only where that may tell that data are
  // missing.
  bool Finish() {
    if (setjmp(errors_.back()) != 0) return false;  // NOLINT(cert-err52-cpp)
    if (ends_ && info_.output_scanline < info_.output_height) return true;
    while (info_.output_scanline < info_.output_height) {
      ReadRow(scratch_.data());
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }
  bool cmyk() const { return info_.num_components == 4; }
  int channels() const { return cmyk() ? 4 : 3; }
  // What Read writes, and where in it the part begins.
  size_t row_bytes() const { return size_t{info_.output_width} * channels(); }
  size_t part_offset() const { return size_t{left_} * channels(); }
  // After an error.
  Status error() const {
    return errors_.lacks_memory() ? ResourceExhausted(errors_.message())
                                  : DataLoss(errors_.message());
  }

 private:
  // Of a progressive file that lacks its last scans the library guesses the
  // missing coefficients, from blocks further away than those around a part.
  bool Smoothed() const {
    if (info_.coef_bits == nullptr) return false;
    constexpr int kGuessed = 10;
    for (int c = 0; c < info_.num_components; ++c) {
      const int* bits = info_.coef_bits[c];
      if (std::any_of(bits, bits + kGuessed, [](int b) { return b != 0; })) {
        return true;
      }
    }
    return false;
  }
  // By whole blocks from the image's top, as the library skips reliably. Where
  // a colour sample is of several rows, it is mixed with those of the blocks
  // above the part, which are not skipped then.
  void SkipRowsAbove(const ImagePart& part) {
    const auto factor = static_cast<JDIMENSION>(info_.max_v_samp_factor);
    const JDIMENSION block = DCTSIZE * factor;
    JDIMENSION blocks = static_cast<JDIMENSION>(part.top) / block;
    if (factor > 1 && blocks > 0) --blocks;
    if (blocks > 0) jpeg_skip_scanlines(&info_, blocks * block);
  }
  void CropColumns(const ImagePart& part) {
    // A colour sample and its neighbour, which are mixed, span 4 columns.
    constexpr int64_t kMargin = 4;
    const int64_t first = std::max<int64_t>(part.left - kMargin, 0);
    const int64_t last = std::min(part.left + part.width + kMargin, width());
    auto left = static_cast<JDIMENSION>(first);
    auto columns = static_cast<JDIMENSION>(last - first);
    if (last - first == width()) return;
    jpeg_crop_scanline(&info_, &left, &columns);  // which moves `left` outwards
    left_ -= left;
  }
  void ReadRow(unsigned char* row) { jpeg_read_scanlines(&info_, &row, 1); }

  jpeg_decompress_struct info_{};
  JpegErrors errors_;
  jpeg_progress_mgr scans_{};
  bool ends_ = false;  // the file has an end
  JDIMENSION left_ = 0;
  std::vector<unsigned char> scratch_;
};

// Of four inks as DecodeJpeg says. In place.
void InvertedCmykToRgb(uint8_t* pixels, int64_t n) {
  const uint8_t* from = pixels;
  for (uint8_t* to = pixels; n > 0; --n, from += 4, to += 3) {
    for (int c = 0; c < 3; ++c) {
      to[c] = static_cast<uint8_t>((from[c] * from[3] + 127) / 255);
    }
  }
}

Status BeginAny(Decoder& decoder, std::string_view bytes) {
  if (!decoder.Begin(bytes)) return decoder.error();
  const int64_t height = decoder.height(), width = decoder.width();
  if (height * width <= kMaxPixels) return {};
  return DataLoss(fmt::format("{} x {} pixels are more than {}", width, height,
                              kMaxPixels));
}

}  // namespace

Result<JpegSize> ReadJpegSize(std::string_view bytes) {
  Decoder decoder;
  SLUICE_RETURN_IF_ERROR(BeginAny(decoder, bytes));
  return JpegSize{decoder.height(), decoder.width()};
}

Status DecodeJpegRows(std::string_view bytes, const ImagePart& part,
                      const std::function<void(const uint8_t* row)>& take) {
  return CatchErrors([&]() -> Status {
    Decoder decoder;
    SLUICE_RETURN_IF_ERROR(BeginAny(decoder, bytes));
    SLUICE_CHECK(part.top >= 0 && part.height > 0 &&
                 part.top + part.height <= decoder.height());
    SLUICE_CHECK(part.left >= 0 && part.width > 0 &&
                 part.left + part.width <= decoder.width());
    if (!decoder.Start(part)) return decoder.error();
    std::vector<uint8_t> row(decoder.row_bytes());
    uint8_t* const pixels = row.data() + decoder.part_offset();
    for (int64_t y = 0; y < part.height; ++y) {
      if (!decoder.Read(row.data())) return decoder.error();
      if (decoder.cmyk()) InvertedCmykToRgb(pixels, part.width);
      take(pixels);
    }
    if (!decoder.Finish()) return decoder.error();
    return {};
  });
}

Result<Tensor> DecodeJpegPart(std::string_view bytes, const ImagePart& part) {
  SLUICE_ASSIGN_OR_RETURN(
      Tensor image,
      AllocateTensor(DType::kUInt8, {part.height, part.width, 3}));
  uint8_t* to = image.data<uint8_t>();
  SLUICE_RETURN_IF_ERROR(DecodeJpegRows(bytes, part, [&](const uint8_t* row) {
    to = std::copy_n(row, part.width * 3, to);
  }));
  return image;
}

Result<Tensor> DecodeJpeg(std::string_view bytes) {
  SLUICE_ASSIGN_OR_RETURN(const JpegSize size, ReadJpegSize(bytes));
  return DecodeJpegPart(bytes, {0, 0, size.height, size.width});
}

std::string JpegLibrary() {
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
  return fmt::format("libjpeg-turbo {}", LIBJPEG_TURBO_VERSION_NUMBER);
#else
  return fmt::format("libjpeg {}", JPEG_LIB_VERSION);
#endif
}
#else
namespace {
Status NoLibrary() {
  return Unimplemented(
      "this build has no libjpeg, so it cannot read JPEG images; install "
      "libjpeg62-turbo-dev and build again");
}
}  // namespace

Result<JpegSize> ReadJpegSize(std::string_view) {
  return NoLibrary();
}
Status DecodeJpegRows(std::string_view, const ImagePart&,
                      const std::function<void(const uint8_t* row)>&) {
  return NoLibrary();
}
Result<Tensor> DecodeJpegPart(std::string_view, const ImagePart&) {
  return NoLibrary();
}
Result<Tensor> DecodeJpeg(std::string_view) {
  return NoLibrary();
}
std::string JpegLibrary() {
  return {};
}
#endif

}  // namespace sluice
