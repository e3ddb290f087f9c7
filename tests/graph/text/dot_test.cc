// The overview in Graphviz's language, read back by a small reader of its own.
#include "graph/text/dot.h"

#include <doctest/doctest.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/text/fold.h"
#include "graph/text/text.h"
#include "tests/support/named_graph.h"
#include "tests/support/random_network.h"

namespace sluice {
namespace {

using testing::NamedGraph;
using Attributes = std::map<std::string, std::string>;

// What a picture says: https://graphviz.org/doc/info/lang.html, as far as we
// write it. Fails the test where the text is anything else.
class Picture {
 public:
  struct Box {
    std::string cluster;  // "" outside
    Attributes attributes;
  };
  struct Edge {
    std::string from, to;
    Attributes attributes;
  };
  std::string comment;
  std::map<std::string, Box> boxes;
  std::map<std::string, std::string> clusters;  // label by name
  std::vector<Edge> edges;

  explicit Picture(std::string_view text) : text_(text) {
    REQUIRE_EQ(text_.rfind("// ", 0), 0);
    at_ = text_.find('\n');
    comment = text_.substr(0, at_);
    Expect("digraph");
    Expect("{");
    Statements("");
    CHECK_EQ(Token(), "");
  }

  // A label as it is drawn.
  static std::string Drawn(std::string_view label) {
    std::string text;
    for (size_t i = 0; i < label.size(); ++i) {
      if (label[i] == '&') {
        REQUIRE_EQ(label.substr(i, 5), "&amp;");
        text += '&';
        i += 4;
      } else if (label[i] == '\\') {
        const char next = label.at(++i);
        REQUIRE((next == 'n' || next == '\\' || next == '"'));
        text += next == 'n' ? '\n' : next;
      } else {
        text += label[i];
      }
    }
    return text;
  }

 private:
  void Statements(const std::string& cluster) {
    for (std::string word = Token(); word != "}"; word = Token()) {
      REQUIRE(word != "");
      if (word == "subgraph") {
        const std::string name = Token();
        CHECK_EQ(name.rfind("cluster_", 0), 0);
        CHECK(clusters.emplace(name, "").second);
        Expect("{");
        Statements(name);
        continue;
      }
      const std::string next = Token();
      if (next == "=") {
        const std::string value = Token();
        if (word == "label") clusters.at(cluster) = Drawn(Unquoted(value));
        Expect(";");
      } else if (next == "->") {
        const std::string to = Token();
        Expect("[");
        edges.push_back({word, to, List()});
      } else {
        CHECK_EQ(next, "[");
        const Attributes attributes = List();
        if (word == "node" || word == "edge") continue;
        CHECK(boxes.emplace(word, Box{cluster, attributes}).second);
      }
    }
  }

  Attributes List() {
    Attributes attributes;
    for (;;) {
      const std::string key = Token();
      Expect("=");
      CHECK(attributes.emplace(key, Unquoted(Token())).second);
      const std::string end = Token();
      if (end == "]") break;
      REQUIRE_EQ(end, ",");
    }
    Expect(";");
    return attributes;
  }

  static std::string Unquoted(const std::string& token) {
    return token[0] == '"' ? token.substr(1, token.size() - 2) : token;
  }

  void Expect(std::string_view wanted) { REQUIRE_EQ(Token(), wanted); }

  std::string Token() {
    while (at_ < text_.size() && std::isspace(Byte())) ++at_;
    const size_t begin = at_;
    if (at_ == text_.size()) return "";
    if (text_[at_] == '"') {
      for (++at_; text_.at(at_) != '"'; ++at_) {
        REQUIRE(Byte() >= 0x20);
        if (text_[at_] == '\\') ++at_;
      }
      ++at_;
    } else if (text_.substr(at_, 2) == "->") {
      at_ += 2;
    } else if (!IsWord()) {
      ++at_;
    } else {
      while (at_ < text_.size() && IsWord()) ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }
  unsigned char Byte() const { return static_cast<unsigned char>(text_[at_]); }
  bool IsWord() const {
    return std::isalnum(Byte()) || text_[at_] == '_' || text_[at_] == '.';
  }

  std::string_view text_;
  size_t at_ = 0;
};

// The picture against what was folded.
void CheckPicture(const Graph& graph, int most) {
  const std::string text = PrintOverview(graph, most);
  CHECK_EQ(PrintOverview(graph, most), text);
  const Picture picture(text);
  const FoldedGraph folded = Fold(graph, most);
  const auto plural = [](size_t n, const std::string& one,
                         const std::string& end) {
    return std::to_string(n) + " " + one + (n == 1 ? "" : end);
  };
  CHECK_EQ(picture.comment, "// " + plural(graph.nodes().size(), "node", "s") +
                                " as " +
                                plural(folded.boxes.size(), "box", "es"));

  REQUIRE_EQ(picture.boxes.size(), folded.boxes.size());
  for (size_t b = 0; b < folded.boxes.size(); ++b) {
    const Picture::Box& box = picture.boxes.at("b" + std::to_string(b));
    const int cluster = folded.boxes[b].cluster;
    CHECK_EQ(box.cluster,
             cluster < 0 ? "" : "cluster_" + std::to_string(cluster));
    CHECK_EQ(box.attributes.contains("style"),
             folded.boxes[b].part != Part::kForward);
    CHECK_FALSE(Picture::Drawn(box.attributes.at("label")).empty());
  }
  CHECK_EQ(picture.clusters.size(), folded.clusters.size());

  REQUIRE_EQ(picture.edges.size(), folded.edges.size());
  for (size_t e = 0; e < folded.edges.size(); ++e) {
    const FoldedGraph::Edge& edge = folded.edges[e];
    Picture::Edge drawn = picture.edges[e];
    CHECK(picture.boxes.contains(drawn.from));
    CHECK(picture.boxes.contains(drawn.to));
    CHECK(drawn.from != drawn.to);
    if (drawn.attributes.contains("dir")) std::swap(drawn.from, drawn.to);
    CHECK_EQ(drawn.to, "b" + std::to_string(edge.to));
    const bool whole = edge.from.cluster >= 0;
    CHECK_EQ(drawn.attributes.contains("ltail"), whole);
    if (whole) {
      const std::string cluster =
          "cluster_" + std::to_string(edge.from.cluster);
      CHECK_EQ(drawn.attributes["ltail"], cluster);
      CHECK(picture.clusters.contains(cluster));
    } else {
      CHECK_EQ(drawn.from, "b" + std::to_string(edge.from.box));
    }
    const std::string label = drawn.attributes["label"];
    if (edge.tensors.size() == 1) {
      CHECK_EQ(label, " " + edge.tensors[0].type().ToString());
    } else if (!edge.tensors.empty()) {
      CHECK_EQ(label, " " + std::to_string(edge.tensors.size()) + " tensors");
    }
    CHECK_EQ(drawn.attributes["style"] == "dashed", edge.tensors.empty());
  }
}

TEST_CASE("pictures say what was folded, whatever the names") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    NamedGraph random(seed);
    for (const int most : {1, 12, 60}) CheckPicture(random.graph(), most);
  }
  for (uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    Graph graph;
    testing::RandomNetwork network(graph, seed, 12);
    network.AddGradients();
    CheckPicture(graph, kOverviewBoxes);
    // Saved and read, a graph looks the same.
    CHECK_EQ(PrintOverview(*ParseGraph(PrintGraph(graph)).ValueOrThrow()),
             PrintOverview(graph));
  }
}

// What is drawn for a node of that name, whose op is Neg.
std::string DrawnName(const std::string& name) {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {2});
  graph.AddRaw(name, name, OpTable::Global().Get("Neg"), {}, {x}, {x.type()});
  const std::string text = PrintOverview(graph);
  const Picture picture(text);
  const std::string label =
      Picture::Drawn(picture.boxes.at("b1").attributes.at("label"));
  REQUIRE(label.size() > 4);
  REQUIRE_EQ(label.substr(label.size() - 4), "\nNeg");
  return label.substr(0, label.size() - 4);
}

TEST_CASE("names are drawn as they are, or so that one sees what they are") {
  for (const char* name :
       {"y", "a\"b", "back\\", "\\N", "\\\"", "{}[];", "<b>", "&lt;", "a&b",
        "-> x", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xb0", "a b"}) {
    CAPTURE(name);
    CHECK_EQ(DrawnName(name), name);
  }
  CHECK_EQ(DrawnName("two\nlines"), "two\\x0alines");
  CHECK_EQ(DrawnName("\t\x7f"), "\\x09\\x7f");
  // No UTF-8: cut off, never begun, longer than need be, a surrogate, beyond
  // the last character.
  CHECK_EQ(DrawnName("\xe2\x82"), "\\xe2\\x82");
  CHECK_EQ(DrawnName("\xe2\x82z"), "\\xe2\\x82z");
  CHECK_EQ(DrawnName("\x80"), "\\x80");
  CHECK_EQ(DrawnName("\xc0\xaf\xc1\xbf"), "\\xc0\\xaf\\xc1\\xbf");
  CHECK_EQ(DrawnName("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  CHECK_EQ(DrawnName("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  CHECK_EQ(DrawnName("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
  CHECK_EQ(DrawnName("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  CHECK_EQ(DrawnName("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  CHECK_EQ(DrawnName("\xf4\x8f\xbf\xbd"), "\xf4\x8f\xbf\xbd");
}

std::string LabelOf(const std::string& text, const std::string& box) {
  return Picture::Drawn(Picture(text).boxes.at(box).attributes.at("label"));
}

TEST_CASE("a box says what it computes, how much and where") {
  Graph graph;
  Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown, 3000});
  {
    NameScope names(graph, "fc");
    const Output w = graph.Variable("w", Zeros({3000, 1000}));
    const Output mean = graph.Variable("m", Zeros({7}), {.trainable = false});
    x = MatMul(x, w);
    x = Relu(Relu(Tanh(Relu(Sigmoid(x)) + 1.0f)));
    Assign(mean, mean);
    Size(x);
  }
  std::string text = PrintOverview(graph);
  CHECK_EQ(LabelOf(text, "b0"), "x\nPlaceholder");
  // Ops come by how many there are, then as they come; those that only count or
  // store are not named.
  CHECK(LabelOf(text, "b1").rfind("fc\n3 Relu, ", 0) == 0);
  CHECK(LabelOf(text, "b1").find("Assign") == std::string::npos);
  CHECK(LabelOf(text, "b1").find("Size") == std::string::npos);
  CHECK(LabelOf(text, "b1").find(", 3,000,000 parameters") !=
        std::string::npos);

  for (const auto& node : graph.nodes()) node->set_device("/cpu:0");
  CHECK_EQ(PrintOverview(graph), text);
  graph.Find("x")->set_device("/gpu:0");
  text = PrintOverview(graph);
  CHECK_EQ(LabelOf(text, "b0"), "x\nPlaceholder\n/gpu:0");
  CHECK(LabelOf(text, "b1").find("\n/cpu:0") != std::string::npos);
}

TEST_CASE("clusters have their scopes' names, and boxes theirs below them") {
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {4});
  const Scope block = Scope(graph) / "body" / "0";
  Output y = x;
  for (const char* layer : {"fc1", "fc2"}) {
    const NameScope names(block / layer);
    y = Tanh(y);
  }
  y = y + x;
  const std::string text = PrintOverview(graph);
  const Picture picture(text);
  CHECK_EQ(picture.clusters,
           std::map<std::string, std::string>{{"cluster_0", "body"},
                                              {"cluster_1", "body/0"}});
  CHECK_EQ(LabelOf(text, "b1"), "fc1\nTanh");
  CHECK_EQ(LabelOf(text, "b3"), "add\nAdd");
  CHECK_EQ(picture.boxes.at("b3").cluster, "cluster_1");
}

}  // namespace
}  // namespace sluice
