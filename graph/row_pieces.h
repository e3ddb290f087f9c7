// Variables whose rows are on several devices: a large one's, which none of
// these has whole. In the graph, and for who reads and writes it through a
// session, it is one variable; passes::SpreadRows makes variables of its pieces
// in each step.
#ifndef SLUICE_GRAPH_ROW_PIECES_H_
#define SLUICE_GRAPH_ROW_PIECES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

// Rows [begin, end) of a variable, which `device` keeps under its origin.
struct RowPiece {
  std::string device;
  int64_t begin = 0, end = 0;
};

// How `rows` are shared out among as many of the devices as get some: alike, to
// a few, so that each piece begins at a row whose elements a random op can
// begin with (kRandomAlignment).
std::vector<RowPiece> CutRows(int64_t rows,
                              const std::vector<std::string>& devices);

// Spreads a variable's rows over `devices`; with one device all are there. The
// variable must have rows.
void SpreadRows(Node& variable, const std::vector<std::string>& devices);
// Undoes SpreadRows; the variable then asks for no device.
void UnspreadRows(Node& variable);

// Whether a variable's rows are spread, and its pieces in order; none for a
// variable that is not spread.
bool SpreadsRows(const Node& variable);
std::vector<RowPiece> PiecesOf(const Node& variable);

}  // namespace sluice

#endif  // SLUICE_GRAPH_ROW_PIECES_H_
