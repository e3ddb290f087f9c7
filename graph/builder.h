// Everything needed to write a graph: Graph, its ops and Gradients.
#ifndef SLUICE_GRAPH_BUILDER_H_
#define SLUICE_GRAPH_BUILDER_H_

#include "graph/autograd.h"
#include "graph/graph.h"
#include "graph/ops/activation.h"
#include "graph/ops/array.h"
#include "graph/ops/collective.h"
#include "graph/ops/control.h"
#include "graph/ops/conv.h"
#include "graph/ops/dropout.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/loss.h"
#include "graph/ops/matmul.h"
#include "graph/ops/norm.h"
#include "graph/ops/optimizer.h"
#include "graph/ops/pool.h"
#include "graph/ops/random.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "graph/ops/softmax.h"
#include "graph/ops/state.h"
#include "graph/reuse_variables.h"

#endif  // SLUICE_GRAPH_BUILDER_H_
