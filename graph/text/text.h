// The readable form of a graph: printed, parsed, saved to files, compared in
// tests. One node a line, each after those it depends on:
//
//   fc1/matmul = MatMul(image, fc1/weights, ^ready) {transpose_a = false,
//     transpose_b = false} : float32[?,128] @ /cpu:0
//
//   graph      = { [node] [comment] newline }
//   node       = name "=" op "(" [operand {"," operand}] ")" [attributes]
//                [":" type {"," type}] ["@" device] ["from" name]
//   operand    = name [":" index] | "^" name      "^": control, after the data
//   attributes = "{" [attribute {"," attribute}] "}"
//   attribute  = identifier "=" value             defaults may be left out
//   value      = "true" | "false" | int | float | string | dtype | ints | shape
//              | tensor                           as the op's record says
//   ints       = "[" [int {"," int}] "]"
//   shape      = "[" [dim {"," dim}] "]"          dim: int, or "?" for unknown
//   type       = dtype shape                      checked against inference
//   tensor     = type "{" [element {"," element}] "}"
//              | type "{" element "..." "}"       all elements the same
//              | type "base64" string             the bytes, little-endian
//   name       = characters of [A-Za-z0-9_./-] | string
//   device     = characters of [A-Za-z0-9_./:-] | string
//   string     = '"' ... '"' with \" \\ \n \t \xHH
//   comment    = "#" up to the end of the line
//
// "from" names the origin where it differs from the name. Numbers are the
// shortest that read back exactly. Within brackets lines may be broken. A value
// "{" graph "}" is kept free for graph-valued attributes.
#ifndef SLUICE_GRAPH_TEXT_TEXT_H_
#define SLUICE_GRAPH_TEXT_TEXT_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// Parsing what was printed gives an equal graph (names, origins, devices,
// attributes, types, tensors bit for bit); source locations are not kept.
// Throws Error for a graph with a cycle.
std::string PrintGraph(const Graph& graph);

// Never crashes on bad text: the error says line, column and what was wanted.
// Ops must be registered; inference runs on every node and must agree with the
// types written, where there are any.
Result<std::unique_ptr<Graph>> ParseGraph(std::string_view text);

// Graphviz: control edges dashed, one colour per device.
std::string PrintDot(const Graph& graph);

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_TEXT_H_
