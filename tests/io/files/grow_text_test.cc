#include "io/files/grow_text.h"

#include <doctest/doctest.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace sluice {
namespace {

// Fills with `byte`.
auto With(char byte, size_t wrote) {
  return [=](char* to) -> Result<size_t> {
    std::memset(to, byte, wrote);
    return wrote;
  };
}

TEST_CASE("a text grows by what is written, behind what it had") {
  for (const size_t before : {0, 1, 15, 16, 100'000}) {
    for (const size_t more : {0, 1, 15, 16, 1000, 5'000'000}) {
      for (const size_t wrote : {size_t{0}, more / 2, more}) {
        CAPTURE(before);
        CAPTURE(more);
        CAPTURE(wrote);
        std::string text(before, 'a');
        CHECK(GrowText(&text, more, With('b', wrote)).ok());
        const bool right =
            text == std::string(before, 'a') + std::string(wrote, 'b');
        CHECK(right);
        CHECK(text.c_str()[text.size()] == '\0');
      }
    }
  }
}

TEST_CASE("a text that cannot grow is what it was") {
  const auto check = [](size_t more,
                        const std::function<Result<size_t>(char*)>& fill) {
    std::string text = "what it was";
    const Status status = GrowText(&text, more, fill);
    CHECK(text == "what it was");
    return status.code();
  };
  CHECK(check(100, [](char* to) -> Result<size_t> {
          std::memset(to, 'x', 50);
          return Unavailable("gone");
        }) == Code::kUnavailable);
  CHECK(check(100, [](char*) -> Result<size_t> { throw std::bad_alloc(); }) ==
        Code::kResourceExhausted);
  CHECK(check(100, [](char*) -> Result<size_t> {
          throw std::runtime_error("odd");
        }) == Code::kInvalidArgument);
}

TEST_CASE("several threads fill a text at once") {
  constexpr size_t kPart = 100'000;
  std::string text = "begin";
  CHECK(GrowText(&text, 8 * kPart, [](char* to) -> Result<size_t> {
          std::vector<std::thread> threads;
          for (int t = 0; t < 8; ++t) {
            threads.emplace_back(
                [=] { std::memset(to + t * kPart, 'a' + t, kPart); });
          }
          for (std::thread& thread : threads) thread.join();
          return 8 * kPart;
        }).ok());
  std::string wanted = "begin";
  for (int t = 0; t < 8; ++t) wanted += std::string(kPart, 'a' + t);
  const bool right = text == wanted;
  CHECK(right);
}

}  // namespace
}  // namespace sluice
