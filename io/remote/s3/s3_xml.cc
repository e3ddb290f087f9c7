#include "io/remote/s3/s3_xml.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "engine/parse_number.h"
#include "io/files/open_files.h"
#include "io/remote/http/ascii.h"
#include "io/remote/http/http.h"
#include "io/remote/http/url.h"
#include "io/remote/http/xml.h"

namespace sluice::remote {
namespace {

Status WrongRoot(std::string_view wanted, std::string_view root) {
  return DataLoss("an answer of S3 is <" + Escaped(root) + ">, wanted <" +
                  std::string(wanted) + ">");
}

// Of encoding-type=url, which writes a space as "+".
Result<std::string> DecodeName(std::string_view encoded) {
  auto name = DecodePercent(encoded, /*plus_is_space=*/true);
  if (!name.ok()) return DataLoss("a list of S3: " + name.status().message());
  return name;
}

}  // namespace

Result<ObjectList> ParseObjectList(std::string_view body) {
  constexpr std::string_view kRoot = "ListBucketResult";
  std::string root, token;
  std::optional<bool> truncated;
  bool encoded = false, has_key = false, has_size = false;
  ObjectList list;
  ListedObject object;
  const auto on_element = [&](std::string_view path,
                              std::string text) -> Status {
    if (path == "EncodingType") {
      encoded = text == "url";
    } else if (path == "IsTruncated") {
      truncated = Stripped(text) == "true";
    } else if (path == "NextContinuationToken") {
      token = std::move(text);
    } else if (path == "CommonPrefixes/Prefix") {
      list.common_prefixes.push_back(std::move(text));
    } else if (path == "Contents/Key") {
      object.key = std::move(text);
      has_key = true;
    } else if (path == "Contents/ETag") {
      object.etag = std::move(text);
    } else if (path == "Contents/Size") {
      const auto size = ParseWhole<uint64_t>(Stripped(text));
      if (!size) {
        return DataLoss("a list of S3 gives an object's size as '" +
                        Shown(text) + "'");
      }
      object.size = *size;
      has_size = true;
    } else if (path == "Contents") {
      if (!has_key || !has_size) {
        return DataLoss("a list of S3 has an object without " +
                        std::string(has_key ? "size" : "key"));
      }
      list.objects.push_back(std::exchange(object, {}));
      has_key = has_size = false;
    }
    return Status::Ok();
  };
  SLUICE_RETURN_IF_ERROR(ReadXml(body, &root, on_element));
  if (root != kRoot) return WrongRoot(kRoot, root);
  // A list that ends early would go unnoticed.
  if (!truncated) return DataLoss("a list of S3 does not say whether it ends");
  if (*truncated && token.empty()) {
    return DataLoss(
        "a list of S3 goes on without saying how: the server knows no "
        "ListObjectsV2");
  }
  if (*truncated) list.next_token = std::move(token);
  // The element that says so comes last with some servers.
  if (!encoded) return list;
  for (ListedObject& listed : list.objects) {
    SLUICE_ASSIGN_OR_RETURN(listed.key, DecodeName(listed.key));
  }
  for (std::string& prefix : list.common_prefixes) {
    SLUICE_ASSIGN_OR_RETURN(prefix, DecodeName(prefix));
  }
  return list;
}

Result<std::string> ParseUploadId(std::string_view body) {
  constexpr std::string_view kRoot = "InitiateMultipartUploadResult";
  std::string root, id;
  SLUICE_RETURN_IF_ERROR(
      ReadXml(body, &root, [&](std::string_view path, std::string text) {
        if (path == "UploadId") id = std::move(text);
        return Status::Ok();
      }));
  if (root != kRoot) return WrongRoot(kRoot, root);
  if (id.empty()) return DataLoss("S3 began an upload without an UploadId");
  return id;
}

Result<S3Outcome> ParseS3Outcome(std::string_view body) {
  std::string root;
  S3Outcome outcome;
  SLUICE_RETURN_IF_ERROR(
      ReadXml(body, &root, [&](std::string_view path, std::string text) {
        TakeErrorElement(path, text, &outcome.error);
        if (path == "ETag") outcome.etag = std::move(text);
        return Status::Ok();
      }));
  if (root == "Error") {
    if (outcome.error.code.empty()) outcome.error.code = "Error";
    return outcome;
  }
  // Amazon's and most others' are results, moto's are responses.
  if (!root.ends_with("Result") && !root.ends_with("Response")) {
    return WrongRoot("...Result", root);
  }
  outcome.error = {};
  return outcome;
}

std::string CompleteUploadBody(const std::vector<std::string>& etags) {
  std::string body = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < etags.size(); ++i) {
    body += "<Part><PartNumber>" + std::to_string(i + 1) +
            "</PartNumber><ETag>" + EscapedXml(etags[i]) + "</ETag></Part>";
  }
  return body + "</CompleteMultipartUpload>";
}

}  // namespace sluice::remote
