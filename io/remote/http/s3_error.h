// The body of a refusal in the form that S3 and its like give it, also behind
// plain addresses: those that are signed beforehand. What a server says is cut
// to a length that fits a message, and escaped.
#ifndef SLUICE_IO_REMOTE_HTTP_S3_ERROR_H_
#define SLUICE_IO_REMOTE_HTTP_S3_ERROR_H_

#include <string>
#include <string_view>

namespace sluice::remote {

// An error in an answer of S3; of little use where a proxy wrote it.
struct S3Error {
  std::string code;     // "NoSuchKey"
  std::string message;  // for people

  friend bool operator==(const S3Error&, const S3Error&) = default;
};

// Parses an answer's body. Code and message are empty where it is no <Error>: a
// status code without a body, or with a page of HTML, is common, and the status
// code is error enough.
S3Error ParseS3Error(std::string_view body);

// Takes an element (OnElement, io/remote/http/xml.h) that belongs to an error.
void TakeErrorElement(std::string_view path, std::string_view text,
                      S3Error* error);

// A server's text as one line that fits into another message.
std::string Shown(std::string_view text);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_S3_ERROR_H_
