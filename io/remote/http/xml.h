// XML as servers answer with: small, of elements and their text. Read with
// expat.
#ifndef SLUICE_IO_REMOTE_HTTP_XML_H_
#define SLUICE_IO_REMOTE_HTTP_XML_H_

#include <functional>
#include <string>
#include <string_view>

#include "engine/status.h"

namespace sluice::remote {

// Called for each element when it ends, with its path below the root,
// "Contents/Key", empty for the root itself, and its text as UTF-8, empty where
// it has elements in it. An error ends the reading. Names are without their
// namespaces; attributes, and text between elements, are left out.
using OnElement =
    std::function<Status(std::string_view path, std::string text)>;

// Reads all of `body`, white space before it and behind it aside. `*root` is
// the root's name from the first call on. kDataLoss for any bytes that are no
// XML, more than 16 MiB, a depth of more than 16, and a DOCTYPE;
// kUnimplemented in a build without expat.
Status ReadXml(std::string_view body, std::string* root,
               const OnElement& on_element);

// `text` as an element's.
std::string EscapedXml(std::string_view text);

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_HTTP_XML_H_
