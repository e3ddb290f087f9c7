#include "io/images/jpeg_errors.h"

#if SLUICE_HAVE_JPEG
#include <algorithm>
#include <cstdio>
// After cstdio, whose types they use.
#include <jerror.h>
#include <jpeglib.h>

namespace sluice {

struct JpegErrors::State {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer is ours
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

JpegErrors::JpegErrors() : state_(std::make_unique<State>()) {
  jpeg_std_error(&state_->manager);
  state_->manager.error_exit = Fail;
}

JpegErrors::~JpegErrors() = default;

jpeg_error_mgr* JpegErrors::manager() {
  return &state_->manager;
}

std::jmp_buf& JpegErrors::back() {
  return state_->back;
}

void JpegErrors::Fail(jpeg_common_struct* info) {
  auto* state = reinterpret_cast<State*>(info->err);
  info->err->format_message(info, state->message);
  std::longjmp(state->back, 1);  // NOLINT(cert-err52-cpp): libjpeg is C
}

void JpegErrors::Fail(jpeg_common_struct* info, std::string_view text) {
  auto* state = reinterpret_cast<State*>(info->err);
  state->manager.msg_code = JMSG_NOMESSAGE;
  const size_t size = std::min(text.size(), sizeof state->message - 1);
  *std::copy_n(text.data(), size, state->message) = '\0';
  std::longjmp(state->back, 1);  // NOLINT(cert-err52-cpp): libjpeg is C
}

const char* JpegErrors::message() const {
  return state_->message;
}

bool JpegErrors::lacks_memory() const {
  return state_->manager.msg_code == JERR_OUT_OF_MEMORY;
}

}  // namespace sluice
#endif
