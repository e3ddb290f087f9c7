// Any bytes are an answer of S3 or an error; what an answer names can be asked
// for, and an upload's parts are XML whatever a server calls them.
#include <string_view>

#include "io/remote/http/xml.h"
#include "io/remote/s3/s3_xml.h"

namespace sluice::remote {
namespace {

void CheckLine(std::string_view text) {
  for (const char c : text) SLUICE_CHECK(c != '\n' && c != '\x1b');
}

void Check(std::string_view body) {
  const auto list = ParseObjectList(body);
  SLUICE_CHECK(list.ok() || list.status().code() == Code::kDataLoss ||
               list.status().code() == Code::kUnimplemented);
  const S3Error error = ParseS3Error(body);
  CheckLine(error.code);
  CheckLine(error.message);
  const auto id = ParseUploadId(body);
  SLUICE_CHECK(!id.ok() || !id->empty());
  // No body is two answers.
  const auto outcome = ParseS3Outcome(body);
  SLUICE_CHECK(!outcome.ok() || !list.ok() || outcome->ok());
  if (!outcome.ok() || outcome->etag.empty()) return;
  std::string root, etag;
  SLUICE_CHECK(ReadXml(CompleteUploadBody({outcome->etag}), &root,
                       [&](std::string_view path, std::string text) {
                         if (path == "Part/ETag") etag = std::move(text);
                         return Status::Ok();
                       })
                   .ok());
  SLUICE_CHECK(etag == outcome->etag);
}

}  // namespace
}  // namespace sluice::remote

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::remote::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
