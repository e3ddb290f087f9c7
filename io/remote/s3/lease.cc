#include "io/remote/s3/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/files/open_files.h"
#include "io/remote/objects/object_reader.h"

namespace sluice::remote {
namespace {

constexpr char kFormat[] = "sluice.lease";
// Both times of the server are whole seconds, rounded down.
constexpr int64_t kRounding = 1;
constexpr size_t kMostBytes = 4096;
constexpr int64_t kMostSeconds = 86'400;  // no lease is meant to last longer

std::string RandomId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(),
                     random());
}

bool IsRefused(const HttpResponse& answer) {
  if (answer.status == 412 || answer.status == 304) return true;
  const std::string code = ParseS3Error(answer.body).code;
  return (answer.status == 409 && code == "ConditionalRequestConflict") ||
         (answer.status == 404 && code != "NoSuchBucket");
}

bool IsUnknown(const HttpResponse& answer) {
  const std::string code = ParseS3Error(answer.body).code;
  return answer.status == 501 || code == "NotImplemented" ||
         (answer.status == 400 && code == "InvalidArgument");
}

}  // namespace

Lease::Lease(S3Client& client, Clock& clock, std::string path,
             std::string_view holder, std::chrono::seconds length)
    : client_(client),
      clock_(clock),
      path_(std::move(path)),
      holder_(holder),
      length_(length),
      id_(RandomId()) {}

std::string Lease::Body(int64_t renewal) const {
  const Json json = {{"format", kFormat},          {"version", 1},
                     {"holder", holder_},          {"id", id_},
                     {"seconds", length_.count()}, {"renewal", renewal}};
  return json.LenientText() + "\n";
}

Result<std::optional<Lease::Found>> Lease::Read(S3Client& client) const {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path_));
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse response,
      client.Send(fmt::format("cannot read '{}'", path_),
                  {.object = std::move(object), .body_limit = kMostBytes}));
  if (response.status == 404 &&
      ParseS3Error(response.body).code != "NoSuchBucket") {
    return std::optional<Found>();
  }
  if (!response.ok()) return WriteRefusal("read", path_, response);
  Found found;
  found.etag = response.Header("etag");
  const auto date = ParseHttpDate(response.Header("date"));
  const auto put = ParseHttpDate(response.Header("last-modified"));
  if (date && put) found.age = *date - *put;
  // Anybody may have written it: what is not exactly a lease has no id.
  if (!ReadFields(response.body, &found).ok()) found.id.clear();
  return std::optional<Found>(std::move(found));
}

Status Lease::ReadFields(std::string_view body, Found* found) {
  SLUICE_ASSIGN_OR_RETURN(const JsonObject fields, JsonObject::Parse(body));
  SLUICE_ASSIGN_OR_RETURN(const std::string format, fields.String("format"));
  SLUICE_ASSIGN_OR_RETURN(found->id, fields.String("id"));
  SLUICE_ASSIGN_OR_RETURN(found->seconds, fields.Int("seconds"));
  if (fields.Has("holder")) {
    SLUICE_ASSIGN_OR_RETURN(const std::string holder, fields.String("holder"));
    found->holder = Escaped(holder);
  }
  if (fields.Has("renewal")) {
    SLUICE_ASSIGN_OR_RETURN(found->renewal, fields.Int("renewal"));
  }
  const bool sound = format == kFormat && found->seconds >= 0 &&
                     found->seconds <= kMostSeconds;
  return sound ? Status() : InvalidArgument("it is no lease");
}

Result<Lease::Put> Lease::PutWith(S3Client& client, const std::string* etag) {
  SLUICE_ASSIGN_OR_RETURN(ObjectPath object, ParseObject(path_));
  const std::string body = Body(++renewal_);
  NamedValues headers;
  if (conditional_) {
    headers.emplace_back(etag == nullptr ? "if-none-match" : "if-match",
                         etag == nullptr ? "*" : *etag);
  }
  sent_ = NowOf(clock_);
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse response,
                          client.Send(fmt::format("cannot lock '{}'", path_),
                                      {.method = "PUT",
                                       .object = std::move(object),
                                       .headers = std::move(headers),
                                       .body = body}));
  if (response.ok()) {
    etag_ = response.Header("etag");
    if (!etag_.empty()) {
      confirmed_ = sent_;
      return Put::kDone;
    }
  } else if (conditional_ && IsUnknown(response)) {
    return Put::kUnknownCondition;
  } else if (!IsRefused(response)) {
    return WriteRefusal("lock", path_, response);
  }
  // It may be there all the same, put by a try whose answer was lost.
  SLUICE_ASSIGN_OR_RETURN(const auto found, Read(client));
  if (!found || found->id != id_ || found->renewal != renewal_) {
    return Put::kRefused;
  }
  etag_ = found->etag;
  confirmed_ = sent_;
  return Put::kDone;
}

Result<Lease::Put> Lease::PutIfAllowed(S3Client& client,
                                       const std::string* etag) {
  SLUICE_ASSIGN_OR_RETURN(const Put put, PutWith(client, etag));
  if (put != Put::kUnknownCondition) return put;
  conditional_ = false;
  return PutWith(client, etag);
}

std::string Lease::TextOf(const Found& found) const {
  if (found.id.empty()) {
    return fmt::format("'{}' is no lock of Sluice's; remove it", path_);
  }
  if (!found.age) return found.holder;
  return fmt::format(
      "{}, for {} s unless it goes on", found.holder,
      std::clamp<int64_t>(found.seconds - *found.age, 0, found.seconds));
}

std::string Lease::WaitingFor(const Found& found, int64_t watched) const {
  const int64_t age = std::max<int64_t>(found.age.value_or(watched), 0);
  return fmt::format(
      "'{}' is locked by {}; if that has ended, this goes on within {} s",
      ParentDirectory(path_),
      found.holder.empty() ? "another program" : found.holder,
      found.seconds + kRounding - age);
}

Status Lease::Acquire(S3Client& client, const FileSystem::OnWait& waits) {
  constexpr int kMostRaces = 100;  // with others, who win them all
  constexpr std::chrono::seconds kBetweenLines(10);
  const auto begin = clock_.Now();
  const auto waited = [&] { return clock_.Now() - begin; };
  auto told = begin - kBetweenLines;
  std::string watched;  // the ETag of another's
  for (int races = 0; races < kMostRaces;) {
    SLUICE_ASSIGN_OR_RETURN(const auto found, Read(client));
    if (found) {
      if (found->id.empty()) return FailedPrecondition(TextOf(*found));
      const std::chrono::seconds lasts(found->seconds + kRounding);
      const bool unseen = !found->age && waited() > lasts;
      const bool over = found->age && *found->age >= lasts.count();
      const bool renewed = !watched.empty() && watched != found->etag;
      watched = found->etag;
      if (renewed || (!over && !unseen && waited() > 2 * lasts)) {
        return FailedPrecondition(TextOf(*found));
      }
      if (!over && !unseen) {
        if (waits && clock_.Now() - told >= kBetweenLines) {
          told = clock_.Now();
          waits(WaitingFor(
              *found, std::chrono::duration_cast<std::chrono::seconds>(waited())
                          .count()));
        }
        clock_.Sleep(std::max<std::chrono::milliseconds>(
            std::chrono::milliseconds(lasts) / 20,
            std::chrono::milliseconds(1)));
        continue;
      }
    }
    SLUICE_ASSIGN_OR_RETURN(
        const Put put, PutIfAllowed(client, found ? &found->etag : nullptr));
    if (put == Put::kDone) return TryConditions(client);
    ++races;
  }
  return Unavailable(fmt::format(
      "cannot lock '{}': others were quicker {} times", path_, kMostRaces));
}

Status Lease::TryConditions(S3Client& client) {
  const std::string other = "\"sluice-is-not-there\"";
  for (const std::string* etag :
       {static_cast<const std::string*>(nullptr), &other}) {
    if (!conditional_) return {};
    // What a put that must be refused leaves is this one's in any case.
    SLUICE_ASSIGN_OR_RETURN(const Put put, PutWith(client, etag));
    conditional_ = put == Put::kRefused;
    if (put == Put::kUnknownCondition) return {};
  }
  return {};
}

Status Lease::Renew() {
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries; ++tries) {
    if (!conditional_) {
      SLUICE_ASSIGN_OR_RETURN(const auto found, Read(client_));
      if (found && found->id != id_) return FailedPrecondition(TextOf(*found));
    }
    const std::string etag = etag_;
    SLUICE_ASSIGN_OR_RETURN(const Put put, PutIfAllowed(client_, &etag));
    if (put == Put::kDone) return {};
    SLUICE_ASSIGN_OR_RETURN(const auto found, Read(client_));
    if (!found) return FailedPrecondition("somebody removed it");
    if (found->id != id_) return FailedPrecondition(TextOf(*found));
    etag_ = found->etag;  // of an earlier put whose answer was lost
  }
  return Unavailable(
      fmt::format("cannot lock '{}': the server refuses its own ETag", path_));
}

bool Lease::IsCertain(const Instant& confirmed, const Instant& now) const {
  const auto most = std::chrono::milliseconds(length_) * 3 / 4;
  return now.steady - confirmed.steady < most &&
         std::chrono::seconds(now.time - confirmed.time) < most;
}

void Lease::Release() {
  // Servers that ignore the condition would remove another's.
  if (etag_.empty() || !IsCertain(confirmed_, NowOf(clock_))) return;
  const auto object = ParseObject(path_);
  if (!object.ok()) return;
  S3Request request{.method = "DELETE", .object = *object};
  if (conditional_) request.headers = {{"if-match", etag_}};
  const std::string what = fmt::format("cannot unlock '{}'", path_);
  const auto response = client_.Send(what, request);
  if (response.ok() && IsUnknown(*response) && conditional_) {
    request.headers.clear();
    // There is nobody to tell; it runs out.
    (void)client_.Send(what, request);
  }
  etag_.clear();
}

std::string Lease::warning() const {
  if (conditional_) return {};
  return fmt::format(
      "'{}': this object store knows no conditional writes (If-None-Match, "
      "If-Match), so programs that start at the same moment could write there "
      "both",
      path_);
}

}  // namespace sluice::remote
