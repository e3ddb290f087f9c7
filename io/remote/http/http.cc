#include "io/remote/http/http.h"

#include <algorithm>

#include "engine/parse_number.h"

namespace sluice::remote {

std::string_view HttpResponse::Header(std::string_view name) const {
  const auto found = std::find_if(headers.rbegin(), headers.rend(),
                                  [&](auto& h) { return h.first == name; });
  return found == headers.rend() ? std::string_view() : found->second;
}

std::optional<std::time_t> ParseHttpDate(std::string_view text) {
  constexpr std::string_view kForm = "Sun, 06 Nov 1994 08:49:37 GMT";
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (text.size() != kForm.size() || text.substr(25) != " GMT") return {};
  const auto number = [&](size_t at, size_t digits) {
    const auto value = ParseWhole<unsigned>(text.substr(at, digits));
    return value ? static_cast<int>(*value) : -1;
  };
  const size_t month = kMonths.find(text.substr(8, 3));
  std::tm time{};
  time.tm_mday = number(5, 2);
  time.tm_mon = static_cast<int>(month / 3);
  time.tm_year = number(12, 4) - 1900;
  time.tm_hour = number(17, 2);
  time.tm_min = number(20, 2);
  time.tm_sec = number(23, 2);
  const bool fits = month < kMonths.size() && month % 3 == 0 &&
                    time.tm_mday >= 1 && time.tm_mday <= 31 &&
                    time.tm_year >= 70 && time.tm_hour >= 0 &&
                    time.tm_hour < 24 && time.tm_min >= 0 && time.tm_min < 60 &&
                    time.tm_sec >= 0 && time.tm_sec <= 60;
  if (!fits) return {};
  return timegm(&time);
}

std::string_view SchemeAndHost(std::string_view url) {
  const size_t host = url.find("://");
  if (host == std::string_view::npos) return url.substr(0, url.find('/'));
  return url.substr(0, url.find_first_of("/?#", host + 3));
}

}  // namespace sluice::remote
