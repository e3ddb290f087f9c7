#include "models/train/run/mirrors.h"

#include <utility>

namespace sluice {

Mirrors::Mirrors(Session& home, DeviceThreads& devices)
    : home_(home),
      threads_(devices),
      on_each_(true),
      sessions_{&home},
      updating_{&home} {
  SLUICE_CHECK(devices.size() == 1);
}

Mirrors::Mirrors(const Graph& graph, Session& home, DeviceThreads& devices,
                 bool variables_on_each, const SessionOptions& options,
                 std::vector<Output> read)
    : home_(home),
      threads_(devices),
      on_each_(variables_on_each),
      copied_(on_each_ ? graph.Variables() : std::move(read)) {
  SessionOptions own = options;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (on_each_ && i == 0) {
      sessions_.push_back(&home);
      continue;
    }
    own.devices = {devices.name(i)};
    own_.push_back(std::make_unique<Session>(graph, own));
    sessions_.push_back(own_.back().get());
  }
  updating_ = on_each_ ? sessions_ : std::vector<Session*>{&home};
}

void Mirrors::Begin() {
  const bool copies = !on_each_ || (written_ && size() > 1);
  written_ = false;
  values_.resize(copies ? copied_.size() : 0);
  for (size_t i = 0; i < values_.size(); ++i) {
    home_.Read(copied_[i], &values_[i]);
  }
}

void Mirrors::Take(size_t device) {
  Session& session = *sessions_[device];
  if (&session == &home_) return;
  session.set_step(home_.step());
  for (size_t i = 0; i < values_.size(); ++i) {
    session.Write(copied_[i], values_[i]);
  }
}

}  // namespace sluice
