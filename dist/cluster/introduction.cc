#include "dist/cluster/introduction.h"

#include <fmt/format.h>

#include "dist/cluster/message.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/passes/device_description.h"

namespace sluice::dist {

std::string Introduction::ToText() const {
  return Json{{"task", task}, {"number", number}, {"to", to}}.Text();
}

Result<Introduction> Introduction::Parse(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  Introduction who;
  SLUICE_ASSIGN_OR_RETURN(who.task, json.String("task"));
  SLUICE_ASSIGN_OR_RETURN(who.number, json.String("number"));
  SLUICE_ASSIGN_OR_RETURN(who.to, json.Bool("to"));
  return who;
}

std::string Peer::ToText() const {
  const Json json = {
      {"task", address.name},         {"host", address.host},
      {"port", address.port},         {"first run", first_run},
      {"descriptions", descriptions}, {"incarnations", WordsOf(incarnations)}};
  return json.Text();
}

Result<Peer> Peer::Parse(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::Parse(text));
  Peer peer;
  SLUICE_ASSIGN_OR_RETURN(peer.address.name, json.String("task"));
  SLUICE_ASSIGN_OR_RETURN(peer.address.host, json.String("host"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t port, json.Int("port"));
  if (port < 0 || port > 65535) {
    return InvalidArgument(fmt::format("{} is no port", port));
  }
  peer.address.port = static_cast<int>(port);
  SLUICE_ASSIGN_OR_RETURN(peer.first_run, json.Unsigned("first run"));
  SLUICE_ASSIGN_OR_RETURN(peer.descriptions, json.Strings("descriptions"));
  for (const std::string& described : peer.descriptions) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device,
                            DeviceDescription::Parse(described));
    peer.devices.push_back(device.name);
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                          json.Strings("incarnations"));
  SLUICE_ASSIGN_OR_RETURN(peer.incarnations, NumbersOf(words));
  if (peer.incarnations.size() != peer.devices.size()) {
    return InvalidArgument(fmt::format("{} incarnations of {} devices",
                                       peer.incarnations.size(),
                                       peer.devices.size()));
  }
  return peer;
}

}  // namespace sluice::dist
