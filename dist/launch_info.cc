#include "dist/launch_info.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "dist/other_launchers.h"
#include "engine/parse_number.h"

namespace sluice::dist {
namespace {

constexpr const char* kSize = "SLUICE_SIZE";
constexpr const char* kRank = "SLUICE_RANK";
constexpr const char* kLocalSize = "SLUICE_LOCAL_SIZE";
constexpr const char* kLocalRank = "SLUICE_LOCAL_RANK";
constexpr const char* kPinned = "SLUICE_PINNED";
constexpr const char* kCoordinator = "SLUICE_COORDINATOR";
constexpr const char* kListenFd = "SLUICE_LISTEN_FD";
constexpr const char* kTokenFd = "SLUICE_TOKEN_FD";
constexpr const char* kCredentialsFd = "SLUICE_CREDENTIALS_FD";
constexpr const char* kCertificates = "SLUICE_CERTIFICATES";
constexpr const char* kServers = "SLUICE_SERVERS";
constexpr const char* kServer = "SLUICE_SERVER";
constexpr const char* kRosterFd = "SLUICE_ROSTER_FD";
constexpr const char* kHost = "SLUICE_HOST";

constexpr size_t kTokenDigits = 64;
constexpr size_t kCredentialBytes = size_t{64} << 10;

// nullopt where it is not set.
std::optional<std::string_view> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

bool IsSet(const char* name) {
  return Variable(name).has_value();
}

Status Senseless(const char* name, std::string_view wanted) {
  return InvalidArgument(fmt::format("{}={} is not {}", name,
                                     Variable(name).value_or(""), wanted));
}

// Nothing but digits, in [least, most].
std::optional<int> ParseInteger(std::string_view text, int least, int most) {
  const auto value = ParseWhole<int>(text);
  if (!value || text[0] == '-' || *value < least || *value > most) {
    return std::nullopt;
  }
  return value;
}

// The variable must be set.
Result<int> Integer(const char* name, int least, int most) {
  if (const auto value =
          ParseInteger(Variable(name).value_or(""), least, most)) {
    return *value;
  }
  if (most == std::numeric_limits<int>::max()) {
    return Senseless(name, fmt::format("a number from {}", least));
  }
  return Senseless(name, fmt::format("a number from {} to {}", least, most));
}

Result<int> OpenDescriptor(const char* name) {
  return Integer(name, 0, std::numeric_limits<int>::max());
}

Status ReadRoster(LaunchInfo* info) {
  SLUICE_ASSIGN_OR_RETURN(info->roster_fd, OpenDescriptor(kRosterFd));
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(info->roster_fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
      type != SOCK_SEQPACKET) {
    return Senseless(kRosterFd, "the descriptor of a socket of packets");
  }
  info->host = Variable(kHost).value_or("");
  return {};
}

// All that are missing, in one error.
Status CheckSet(const std::vector<const char*>& names) {
  std::vector<const char*> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [](const char* name) { return !IsSet(name); });
  if (missing.empty()) return {};
  return InvalidArgument(
      fmt::format("{} not set, though other variables of a launcher are",
                  fmt::join(missing, ", ")));
}

Status ReadCoordinator(LaunchInfo* info) {
  Result<TaskAddress> at =
      ParseTaskAddress(Variable(kCoordinator).value_or(""));
  if (!at.ok()) {
    return Senseless(kCoordinator, "host:port, or [address]:port for IPv6");
  }
  info->host = at->host;
  info->port = at->port;
  return {};
}

Status ReadListener(LaunchInfo* info) {
  if (info->rank != 0 && info->server < 0) {
    return InvalidArgument(
        fmt::format("{} is set for rank {}; only rank 0 "
                    "listens",
                    kListenFd, info->rank));
  }
  SLUICE_ASSIGN_OR_RETURN(info->listen_fd, OpenDescriptor(kListenFd));
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (getsockopt(info->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) <
          0 ||
      listens == 0) {
    return Senseless(kListenFd, "the descriptor of a socket that listens");
  }
  return {};
}

// To the end, or one character more than `longest`; closes the descriptor.
Status ReadUpToOneMore(const char* name, int descriptor, size_t longest,
                       std::string* text) {
  text->assign(longest + 1, '\0');
  size_t length = 0;
  int error = 0;
  while (length < text->size()) {
    const ssize_t n =
        read(descriptor, text->data() + length, text->size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error = errno;
    if (n <= 0) break;
    length += static_cast<size_t>(n);
  }
  close(descriptor);
  if (error != 0) {
    return InvalidArgument(fmt::format("{}={} cannot be read: {}", name,
                                       descriptor, std::strerror(error)));
  }
  text->resize(length);
  return {};
}

// What was read is in no message: it may be most of a secret.
Status ReadToken(LaunchInfo* info) {
  SLUICE_ASSIGN_OR_RETURN(const int descriptor, OpenDescriptor(kTokenFd));
  std::string& token = info->token;
  SLUICE_RETURN_IF_ERROR(
      ReadUpToOneMore(kTokenFd, descriptor, kTokenDigits, &token));
  const bool digits =
      token.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (token.size() != kTokenDigits || !digits) {
    return InvalidArgument(fmt::format(
        "{}={} gives {} characters{}, not a token of {} "
        "hexadecimal digits",
        kTokenFd, descriptor,
        token.size() > kTokenDigits ? "too many" : std::to_string(token.size()),
        digits ? "" : ", other ones among them", kTokenDigits));
  }
  return {};
}

Status ReadCredentialsText(LaunchInfo* info) {
  SLUICE_ASSIGN_OR_RETURN(const int descriptor, OpenDescriptor(kCredentialsFd));
  std::string text;
  SLUICE_RETURN_IF_ERROR(
      ReadUpToOneMore(kCredentialsFd, descriptor, kCredentialBytes, &text));
  Result<Credentials> credentials = ParseCredentials(text);
  if (!credentials.ok()) {
    return credentials.status().WithContext(
        fmt::format("{}={}", kCredentialsFd, descriptor));
  }
  info->credentials = *std::move(credentials);
  return {};
}

Status ReadServers(LaunchInfo* info) {
  std::string_view rest = *Variable(kServers);
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    Result<TaskAddress> at = ParseTaskAddress(one);
    if (!at.ok()) return Senseless(kServers, "host:port,host:port,...");
    info->servers.push_back(*std::move(at));
  }
  if (info->servers.empty()) {
    return Senseless(kServers, "host:port,host:port,...");
  }
  SLUICE_ASSIGN_OR_RETURN(info->servers_return, ServersReturn());
  return {};
}

// Of a parameter server.
Status ReadServersPlace(LaunchInfo* info) {
  SLUICE_RETURN_IF_ERROR(
      CheckSet({kSize, kLocalSize, kServers, kListenFd, kTokenFd}));
  if (IsSet(kRank) || IsSet(kLocalRank)) {
    return InvalidArgument(
        fmt::format("{} and {} are set: a parameter server has no rank",
                    kServer, IsSet(kRank) ? kRank : kLocalRank));
  }
  constexpr int kMost = std::numeric_limits<int>::max();
  SLUICE_ASSIGN_OR_RETURN(info->size, Integer(kSize, 1, kMost));
  SLUICE_ASSIGN_OR_RETURN(info->local_size, Integer(kLocalSize, 1, info->size));
  info->rank = info->local_rank = -1;
  SLUICE_RETURN_IF_ERROR(ReadServers(info));
  SLUICE_ASSIGN_OR_RETURN(
      info->server,
      Integer(kServer, 0, static_cast<int>(info->servers.size()) - 1));
  return ReadListener(info);
}

// Of a rank.
Status ReadPlace(LaunchInfo* info) {
  constexpr int kMost = std::numeric_limits<int>::max();
  SLUICE_RETURN_IF_ERROR(CheckSet({kSize, kRank, kLocalSize, kLocalRank}));
  SLUICE_ASSIGN_OR_RETURN(info->size, Integer(kSize, 1, kMost));
  SLUICE_ASSIGN_OR_RETURN(info->rank, Integer(kRank, 0, info->size - 1));
  SLUICE_ASSIGN_OR_RETURN(info->local_size, Integer(kLocalSize, 1, info->size));
  SLUICE_ASSIGN_OR_RETURN(info->local_rank,
                          Integer(kLocalRank, 0, info->local_size - 1));
  if (IsSet(kPinned)) {
    SLUICE_ASSIGN_OR_RETURN(const int pinned, Integer(kPinned, 1, 1));
    info->pinned = pinned == 1;
  }
  return {};
}

}  // namespace

Result<std::optional<LaunchInfo>> ReadLaunchInfo() {
  // SLUICE_COORDINATOR alone is a user's word to another launcher, and so is
  // what OwnPort and ServersReturn read.
  const std::vector<const char*> names = {
      kSize,    kRank,          kLocalSize, kLocalRank, kPinned,  kListenFd,
      kTokenFd, kCredentialsFd, kServers,   kServer,    kRosterFd};
  if (std::none_of(names.begin(), names.end(), IsSet)) {
    return ReadOtherLaunchers();
  }
  LaunchInfo info;
  if (IsSet(kServer)) {
    SLUICE_RETURN_IF_ERROR(ReadServersPlace(&info));
  } else {
    SLUICE_RETURN_IF_ERROR(ReadPlace(&info));
    SLUICE_ASSIGN_OR_RETURN(info.own_port, OwnPort(info.local_rank));
    if (IsSet(kServers)) {
      SLUICE_RETURN_IF_ERROR(ReadServers(&info));
      SLUICE_RETURN_IF_ERROR(CheckSet({kTokenFd}));
    }
    if (IsSet(kRosterFd)) {
      SLUICE_RETURN_IF_ERROR(ReadRoster(&info));
      SLUICE_RETURN_IF_ERROR(CheckSet({kTokenFd}));
    } else if (info.size > 1) {
      SLUICE_RETURN_IF_ERROR(CheckSet({kCoordinator, kTokenFd}));
      if (info.rank == 0) SLUICE_RETURN_IF_ERROR(CheckSet({kListenFd}));
    }
    if (IsSet(kCoordinator)) SLUICE_RETURN_IF_ERROR(ReadCoordinator(&info));
    if (IsSet(kListenFd)) SLUICE_RETURN_IF_ERROR(ReadListener(&info));
  }
  SLUICE_ASSIGN_OR_RETURN(info.allow_plaintext, PlaintextAllowed());
  // Last: they can be read once.
  if (IsSet(kTokenFd)) SLUICE_RETURN_IF_ERROR(ReadToken(&info));
  if (IsSet(kCredentialsFd)) {
    SLUICE_RETURN_IF_ERROR(ReadCredentialsText(&info));
  } else if (IsSet(kCertificates)) {
    SLUICE_ASSIGN_OR_RETURN(
        info.credentials,
        ReadCredentials(std::string(*Variable(kCertificates)),
                        info.server < 0 ? kWorkerRole : kServerRole,
                        info.server < 0 ? info.rank : info.server));
  }
  return std::optional(std::move(info));
}

std::string JobName() {
  return std::string(Variable(kJobName).value_or(""));
}

}  // namespace sluice::dist
