"""What every op of the table should compute: the list of references.

A reference is a function (c, inputs...) of tensors of PyTorch, floating ones in
float64, that returns the outputs; autograd differentiates it. `c` is the node:
`c.name` is an attribute, defaults filled in, `c.inputs` are the operands of
variadic ops. References are written from the records' one-line docs and the
headers in graph/ops, not from the kernels.
"""
import numpy as np
import torch

REFERENCES = {}
SCALES = {}

# Ops that no reference can be given for, and why.
WITHOUT = {
    "Const": "its value is in the graph's text: every operand that is a constant",
    "Placeholder": "it is fed: every operand that is not a constant",
    "Variable": "it is read by every case of an op that updates variables",
    "NoOp": "it computes nothing; the random graphs have them",
    "Fetch": "made by the session for every fetched value",
    "AllGatherStart": "half of what AllGather becomes: tests of workers",
    "AllReduceStart": "half of what AllReduce becomes: tests of workers",
    "AllToAllStart": "half of what AllToAll becomes: tests of workers",
    "BroadcastStart": "half of what Broadcast becomes: tests of workers",
    "ReduceScatterStart": "half of what ReduceScatter becomes: tests of workers",
    "ReduceStart": "half of what Reduce becomes: tests of workers",
    "CollectiveWait": "the other half of them all: tests of workers",
    "ReduceScatterWait": "the other half of ReduceScatter: tests of workers",
    "NumWorkers": "of one worker it is 1; has no operands: tests of workers",
    "WorkerRank": "of one worker it is 0; has no operands: tests of workers",
    "SendStart": "made by the partitioner: the random graphs on two devices",
    "SendWait": "made by the partitioner: the random graphs on two devices",
    "RecvStart": "made by the partitioner: the random graphs on two devices",
    "RecvWait": "made by the partitioner: the random graphs on two devices",
    "RecvRowsStart": "made by the partitioner: the tests of tables in pieces",
    "RecvRowsWait": "made by the partitioner: the tests of tables in pieces",
    "RowsBetween": "made of reads of tables in pieces, whose tests compare them",
    "GatherCounted": "made of reads of tables in pieces, whose tests compare them",
    "PadRows": "made of updates of tables in pieces, whose tests compare them",
    "JoinRows": "made of reads of tables in pieces, whose tests compare them",
}

# How large rounding errors may be: relative to each element, to the largest
# element, or to the op's result for the operands' magnitudes (sums, products).
# EXACT is for what only chooses, moves and rounds once. A function of outputs and
# inputs says it otherwise.
EACH, LARGEST, MAGNITUDES, EXACT = "each", "largest", "magnitudes", "exact"


def reference(*names, scale=LARGEST):
    def add(function):
        for name in names:
            REFERENCES[name] = function
            SCALES[name] = scale
        return function
    return add


class Node:
    """A node's op, attributes and operands; the dtype arithmetic is done in."""

    def __init__(self, op, attrs, inputs, compute="float64"):
        self.op, self.inputs, self.attrs, self.compute = op, inputs, attrs, compute

    def __getattr__(self, name):
        return self.attrs[name]


def evaluate(op, attrs, inputs, compute="float64"):
    """The outputs of a node as a list."""
    outputs = REFERENCES[op](Node(op, attrs, inputs, compute), *inputs)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def magnitudes(op, attrs, inputs, outputs):
    """Beside each output, what its rounding errors are relative to; None where
    there may be none."""
    kind = SCALES[op]
    if kind == EXACT:
        return [None] * len(outputs)
    if callable(kind):
        return [kind(y, *inputs) for y in outputs]
    if kind == MAGNITUDES:
        sizes = [x.abs() if x.is_floating_point() else x for x in inputs]
        outputs = evaluate(op, attrs, sizes)
    return [_size(y, kind) for y in outputs]


def at_least_one(y, *inputs):
    """Where the operands are about 1, whatever becomes of them."""
    return _size(y, LARGEST).clamp(min=1.0)


def by_rows(y, x, *inputs):
    """Sums over rows: rounding grows with their length."""
    return at_least_one(y) * (1 + x.shape[-1] / 64)


def by_channels(y, x, *inputs):
    """Sums over all but channels."""
    return at_least_one(y) * (1 + x.numel() / x.shape[-1] / 64)


def _size(y, kind):
    if not y.is_floating_point():
        return torch.zeros(())
    finite = torch.nan_to_num(y.abs(), posinf=0.0)
    return finite.max() if kind == LARGEST and y.numel() else y.abs()


def move(x, taking):
    """x's elements in the order in which `taking` moves those of a NumPy array
    of x's shape."""
    positions = np.arange(x.numel()).reshape(tuple(x.shape))
    return x.reshape(-1)[torch.from_numpy(np.array(taking(positions), order="C"))]


def axes_of(c, x):
    """The axes a reduction goes over, none of them negative."""
    return sorted(a % x.dim() for a in c.axes) or list(range(x.dim()))


def where(condition, a, b):
    """torch.where for numbers too, which version 1.13 takes only for b."""
    like = a if torch.is_tensor(a) else b
    a, b = (v if torch.is_tensor(v) else torch.full_like(like, v) for v in (a, b))
    return torch.where(condition, a, b)
