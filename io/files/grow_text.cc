// The one file that is compiled as C++23, where the compiler knows that.
#include "io/files/grow_text.h"

#include "engine/catch_errors.h"

namespace sluice {
namespace {

// How long the text is to be in the end, where it has room for `most` bytes.
template <typename Fn>
void Overwrite(std::string* text, size_t most, const Fn& fn) {
#ifdef __cpp_lib_string_resize_and_overwrite
  text->resize_and_overwrite(
      most, [&](char* bytes, size_t) -> size_t { return fn(bytes); });
#else
  text->resize(most);  // with zeros
  text->resize(fn(text->data()));
#endif
}

}  // namespace

Status GrowText(std::string* text, size_t more,
                const std::function<Result<size_t>(char*)>& fill) {
  const size_t before = text->size();
  return CatchErrors([&] {
    Status status;
    Overwrite(text, before + more, [&](char* bytes) {
      const Result<size_t> wrote =
          CatchErrors([&] { return fill(bytes + before); });
      if (wrote.ok()) return before + *wrote;
      status = wrote.status();
      return before;
    });
    return status;
  });
}

}  // namespace sluice
