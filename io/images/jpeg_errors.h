// How libjpeg reports errors. Internal to io/images; for builds with libjpeg.
#ifndef SLUICE_IO_IMAGES_JPEG_ERRORS_H_
#define SLUICE_IO_IMAGES_JPEG_ERRORS_H_

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <string>
#include <string_view>
// After cstdio, whose types they use.
#include <jerror.h>
#include <jpeglib.h>

#include "engine/status.h"

namespace sluice {

// libjpeg calls error functions that must not return: they jump back to where
// setjmp(back) was called, from which to libjpeg no function may have objects
// with destructors.
struct JpegErrors {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer is ours
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];

  JpegErrors() : manager(), back(), message() {
    jpeg_std_error(&manager);
    manager.error_exit = Fail;
  }

  // With libjpeg's message.
  [[noreturn]] static void Fail(j_common_ptr info) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    info->err->format_message(info, errors->message);
    std::longjmp(errors->back, 1);  // NOLINT(cert-err52-cpp): libjpeg is C
  }
  // With one of ours.
  [[noreturn]] static void Fail(j_common_ptr info, std::string_view text) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    errors->manager.msg_code = JMSG_NOMESSAGE;
    const size_t size = std::min(text.size(), sizeof errors->message - 1);
    *std::copy_n(text.data(), size, errors->message) = '\0';
    std::longjmp(errors->back, 1);  // NOLINT(cert-err52-cpp): libjpeg is C
  }

  // After one. No file is damaged because it needs much memory.
  bool lacks_memory() const { return manager.msg_code == JERR_OUT_OF_MEMORY; }
};

}  // namespace sluice

#endif  // SLUICE_IO_IMAGES_JPEG_ERRORS_H_
