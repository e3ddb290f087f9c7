// What a relay and its agent say to each other: words come whole, however the
// bytes come, and what is none is noticed.
#include "apps/sluicerun/channel.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/status.h"

namespace sluice::launcher {
namespace {

constexpr char kKinds[] = {'r', 's', 't', 'l', 'k', 'o', 'e', 'x'};

TEST_CASE("words come as they were said, in any pieces") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<Word> said;
    std::string bytes;
    for (unsigned i = 0; i < 1 + random() % 20; ++i) {
      Word word{static_cast<WordKind>(kKinds[random() % 8]), {}};
      const size_t size = random() % 4 == 0 ? 0 : random() % 3000;
      for (size_t k = 0; k < size; ++k) {
        word.text += static_cast<char>(random());
      }
      bytes += Encoded(word.kind, word.text);
      said.push_back(std::move(word));
    }
    WordReader reader;
    std::vector<Word> heard;
    for (size_t at = 0; at < bytes.size();) {
      const size_t piece =
          std::min<size_t>(1 + random() % 2000, bytes.size() - at);
      reader.Add(std::string_view(bytes).substr(at, piece));
      at += piece;
      while (auto word = reader.Next()) heard.push_back(*std::move(word));
    }
    REQUIRE(heard.size() == said.size());
    for (size_t i = 0; i < said.size(); ++i) {
      CHECK(heard[i].kind == said[i].kind);
      CHECK(heard[i].text == said[i].text);
    }
    CHECK(!reader.Next());
  }
  for (const uint32_t number : {0U, 1U, 255U, 65'536U, 4'294'967'295U}) {
    WordReader reader;
    reader.Add(Encoded(WordKind::kTaken, number));
    CHECK(NumberOf(*reader.Next()) == number);
  }
  CHECK(NumberOf({WordKind::kTaken, "abc"}) == 0);
}

TEST_CASE("what is no word is an error, and takes no memory") {
  for (const std::string& text :
       {std::string("hello, world"), std::string("o\xff\xff\xff\xff"),
        std::string("o\x01\x00\x01\x00x", 6), std::string(5, '\0')}) {
    WordReader reader;
    reader.Add(text);
    CHECK_THROWS_AS(reader.Next(), Error);
  }
  WordReader reader;
  reader.Add("o");
  CHECK(!reader.Next());
}

}  // namespace
}  // namespace sluice::launcher
