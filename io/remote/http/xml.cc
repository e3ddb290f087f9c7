#include "io/remote/http/xml.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/text/markup.h"
#include "io/remote/http/ascii.h"

#ifdef SLUICE_HAVE_EXPAT
#include <expat.h>
#endif

namespace sluice::remote {

#ifdef SLUICE_HAVE_EXPAT

namespace {

// A page of a list has up to 1000 keys of 1024 bytes, which encoding makes up
// to six times as many.
constexpr size_t kMaxBody = size_t{16} << 20;
constexpr size_t kMaxDepth = 16;

class XmlReader {
 public:
  XmlReader(std::string* root, const OnElement& on_element)
      : root_(root), on_element_(on_element) {}

  Status Read(std::string_view body) {
    if (body.size() > kMaxBody) {
      return DataLoss("an answer of S3 has more than 16 MiB");
    }
    // Servers send spaces while they work, to keep the connection.
    const size_t begin = body.find_first_not_of(kSpaces);
    if (begin != std::string_view::npos) body.remove_prefix(begin);
    // Names come as "namespace|name".
    parser_ = XML_ParserCreateNS(nullptr, '|');
    if (parser_ == nullptr) return ResourceExhausted("no memory for expat");
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(parser_, Start, End);
    XML_SetCharacterDataHandler(parser_, Text);
    XML_SetStartDoctypeDeclHandler(parser_, Doctype);
    const auto result =
        XML_Parse(parser_, body.data(), static_cast<int>(body.size()), 1);
    if (status_.ok() && result != XML_STATUS_OK) {
      status_ =
          DataLoss(std::string("an answer of S3 is no XML: ") +
                   XML_ErrorString(XML_GetErrorCode(parser_)) + " at byte " +
                   std::to_string(std::max<XML_Index>(
                       0, XML_GetCurrentByteIndex(parser_))));
    }
    XML_ParserFree(parser_);
    return status_;
  }

 private:
  void Stop(Status status) {
    status_ = std::move(status);
    XML_StopParser(parser_, XML_FALSE);
  }

  static void Start(void* self, const XML_Char* name, const XML_Char**) {
    static_cast<XmlReader*>(self)->OnStart(name);
  }
  static void End(void* self, const XML_Char*) {
    static_cast<XmlReader*>(self)->OnEnd();
  }
  static void Text(void* self, const XML_Char* text, int bytes) {
    static_cast<XmlReader*>(self)->text_.append(text,
                                                static_cast<size_t>(bytes));
  }
  // No entities: they are for attacks ("a billion laughs").
  static void Doctype(void* self, const XML_Char*, const XML_Char*,
                      const XML_Char*, int) {
    static_cast<XmlReader*>(self)->Stop(
        DataLoss("an answer of S3 has a DOCTYPE, as a page of HTML has"));
  }

  void OnStart(std::string_view name) {
    if (!status_.ok()) return;
    name.remove_prefix(name.rfind('|') + 1);
    text_.clear();
    leaf_ = true;
    lengths_.push_back(path_.size());
    if (lengths_.size() > kMaxDepth) {
      return Stop(
          DataLoss("an answer of S3 has elements in more than 16 "
                   "others"));
    }
    if (lengths_.size() == 1) {
      *root_ = name;
      return;
    }
    if (!path_.empty()) path_ += '/';
    path_ += name;
  }

  void OnEnd() {
    if (!status_.ok()) return;
    Status status =
        on_element_(path_, leaf_ ? std::move(text_) : std::string());
    path_.resize(lengths_.back());
    lengths_.pop_back();
    text_.clear();
    leaf_ = false;
    if (!status.ok()) Stop(std::move(status));
  }

  std::string* root_;
  const OnElement& on_element_;
  XML_Parser parser_ = nullptr;
  Status status_;
  std::string path_, text_;
  std::vector<size_t> lengths_;  // of path_, before each open element
  bool leaf_ = true;             // nothing ended in what is open
};

}  // namespace

Status ReadXml(std::string_view body, std::string* root,
               const OnElement& on_element) {
  return XmlReader(root, on_element).Read(body);
}

#else

Status ReadXml(std::string_view, std::string*, const OnElement&) {
  return Unimplemented(
      "this build has no expat, so it cannot read the answers of S3; install "
      "libexpat1-dev and build again");
}

#endif

std::string EscapedXml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (const std::string_view entity = EntityOf(c); !entity.empty()) {
      escaped += entity;
    } else if (c == '\r') {  // which a reader would take for a line's end, "\n"
      escaped += "&#13;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace sluice::remote
