#include "io/remote/http/s3_error.h"

#include <algorithm>
#include <cstddef>

#include "engine/status.h"
#include "io/files/open_files.h"
#include "io/remote/http/ascii.h"
#include "io/remote/http/xml.h"

namespace sluice::remote {

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string line(Stripped(text));
  std::replace(line.begin(), line.end(), '\n', ' ');
  if (line.size() > kMost) line = line.substr(0, kMost) + "...";
  return Escaped(line);
}

void TakeErrorElement(std::string_view path, std::string_view text,
                      S3Error* error) {
  if (path == "Code") error->code = Shown(text);
  if (path == "Message") error->message = Shown(text);
}

S3Error ParseS3Error(std::string_view body) {
  std::string root;
  S3Error error;
  const Status status =
      ReadXml(body, &root, [&](std::string_view path, const std::string& text) {
        TakeErrorElement(path, text, &error);
        return Status::Ok();
      });
  // What a cut body has said is better than nothing.
  return root == "Error" ? error : S3Error();
}

}  // namespace sluice::remote
