// Which sanitizer a test was built with, and what that costs.
#ifndef SLUICE_TESTS_SUPPORT_SANITIZERS_H_
#define SLUICE_TESTS_SUPPORT_SANITIZERS_H_

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define SLUICE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define SLUICE_THREAD_SANITIZER 1
#endif
#endif

namespace sluice::testing {

#if defined(SLUICE_ADDRESS_SANITIZER) || defined(SLUICE_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How many of `whole` random cases are tried, and seen of what they should
// show. All without sanitizers. With one each takes five to twenty times as
// long, and what it looks for does not hang on the numbers.
template <typename T>
constexpr T Rounds(T whole) {
  return kSanitized ? (whole + 4) / 5 : whole;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_SANITIZERS_H_
