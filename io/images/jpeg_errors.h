// How libjpeg reports errors. Internal to io/images.
#ifndef SLUICE_IO_IMAGES_JPEG_ERRORS_H_
#define SLUICE_IO_IMAGES_JPEG_ERRORS_H_

#include <csetjmp>
#include <memory>
#include <string_view>

// Structs of libjpeg.
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

  // libjpeg's error manager, for what compresses or decompresses with it.
  jpeg_error_mgr* manager();
  std::jmp_buf& back();

  // For the error functions: jumps back with libjpeg's message, or with `text`.
  [[noreturn]] static void Fail(jpeg_common_struct* info);
  [[noreturn]] static void Fail(jpeg_common_struct* info,
                                std::string_view text);

  // After an error: its message, and whether it is a lack of memory, which does
  // not mean that the file is damaged.
  const char* message() const;
  bool lacks_memory() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_JPEG_ERRORS_H_
