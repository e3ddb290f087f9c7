// How libjpeg reports errors. Internal to io/images.
#ifndef SLUICE_IO_IMAGES_JPEG_ERRORS_H_
#define SLUICE_IO_IMAGES_JPEG_ERRORS_H_

#include <csetjmp>
#include <memory>
#include <string_view>

// libjpeg's.
struct jpeg_common_struct;
struct jpeg_error_mgr;

namespace sluice {

// libjpeg calls error functions that must not return: they jump back to where
// setjmp(back()) was called, between which and libjpeg no function may have
// objects with destructors.
class JpegErrors {
 public:
  JpegErrors();
  ~JpegErrors();
  JpegErrors(const JpegErrors&) = delete;
  JpegErrors& operator=(const JpegErrors&) = delete;

  // For what is compressed or decompressed with it.
  jpeg_error_mgr* manager();
  std::jmp_buf& back();

  // For its functions: with libjpeg's message, or with one of ours.
  [[noreturn]] static void Fail(jpeg_common_struct* info);
  [[noreturn]] static void Fail(jpeg_common_struct* info,
                                std::string_view text);

  // After an error. No file is damaged because it needs much memory.
  const char* message() const;
  bool lacks_memory() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_JPEG_ERRORS_H_
