#include "models/cli/polling.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "models/cli/console.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kLook(200);
constexpr std::chrono::seconds kNoteEvery(10);

}  // namespace

Polling::Polling(std::string what)
    : what_(std::move(what)), note_(begin_ + kNoteEvery) {}

void Polling::Wait(bool quiet) {
  if (!quiet && Clock::now() >= note_) {
    console::Note(
        fmt::format("waiting for {} ({:.0f} s)", what_, elapsed().count()));
    note_ += kNoteEvery;
  }
  std::this_thread::sleep_for(kLook);
}

std::chrono::duration<double> Polling::elapsed() const {
  return Clock::now() - begin_;
}

}  // namespace sluice
