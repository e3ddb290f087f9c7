"""Random cases of ops that reduce, move, cut, fill and index."""
import numpy as np

from cases import Case, dtype_of, makes
from draw import INDICES, dims
from driver import Value
from reference import Node
from reference_shape import slices

# --- Reductions --------------------------------------------------------------


def _axes(d, shape, empty=True):
    axes = d.subset(range(len(shape)), 0 if empty else 1)
    return [a - len(shape) if d.chance(0.3) else a for a in axes]


@makes("Sum", "Prod", "Mean", "Max", "Min", "LogSumExp", "Any", "All")
def reduction(d, op):
    shape = d.shape()
    attrs = {"axes": _axes(d, shape), "keep_dims": d.chance(0.5)}
    lo, hi = (0.5, 1.5) if op["name"] == "Prod" and d.style == "plain" else (-2, 2)
    return attrs, [d.values(dtype_of(d, op), shape, lo, hi)]


@makes("ProdGrad")
def prod_grad(d, op):
    shape = [min(s, 9) for s in d.shape(1, 3)]
    axis = d.integer(0, len(shape) - 1)
    small = [1 if i == axis else s for i, s in enumerate(shape)]
    dtype = dtype_of(d, op)
    d.style = "ties" if d.style == "special" else d.style
    return {"axis": axis - (len(shape) if d.chance(0.3) else 0)}, [
        d.values(dtype, small), d.values(dtype, shape)]


@makes("ArgMax", "ArgMin")
def arg(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(-len(shape), len(shape) - 1)
    shape[axis] = max(1, shape[axis])
    return {"axis": axis, "keep_dims": d.chance(0.5)}, [d.values(dtype_of(d, op), shape)]


@makes("CumSum")
def cum_sum(d, op):
    shape = d.shape(1, 4)
    attrs = {"axis": d.integer(-len(shape), len(shape) - 1),
             "exclusive": d.chance(0.5), "reverse": d.chance(0.5)}
    if d.style == "special":
        d.style = "ties"
    return attrs, [d.values(dtype_of(d, op), shape)]


@makes("SumTo")
def sum_to(d, op):
    shape = d.shape()
    return {}, [d.values(dtype_of(d, op), shape),
                Value.of(d.pick(INDICES), np.array(d.broadcasting(shape)))]


@makes("L2Loss", "SquaredNorm")
def squares(d, op):
    return {}, [d.values(dtype_of(d, op), d.shape())]


@makes("Softmax", "LogSoftmax")
def softmax(d, op):
    shape = d.shape(1, 4)
    shift = d.pick([0, 0, 100, -1000, 10000])
    d.style = "plain" if d.style == "special" else d.style
    return {"axis": d.integer(-len(shape), len(shape) - 1)}, [
        d.values(dtype_of(d, op), shape, shift - 3, shift + 3)]


# --- Shapes and movement -----------------------------------------------------


@makes("Reshape")
def reshape(d, op):
    shape = d.shape()
    rest, to = int(np.prod(shape, dtype=np.int64)), []
    while rest > 1 and len(to) < 7 and d.chance(0.8):
        divisors = [k for k in range(1, min(rest, 64) + 1) if rest % k == 0]
        to.append(d.pick(divisors))
        rest //= to[-1]
    to.insert(d.integer(0, len(to)), rest)
    if rest and 0 not in to and d.chance(0.4):
        to[d.integer(0, len(to) - 1)] = -1
    return {}, [d.values(dtype_of(d, op), shape), dims(to)]


@makes("ExpandDims")
def expand_dims(d, op):
    shape = d.shape()
    return {"axis": d.integer(-len(shape) - 1, len(shape))}, [
        d.values(dtype_of(d, op), shape)]


@makes("Squeeze")
def squeeze(d, op):
    shape = [1 if d.chance(0.4) else s for s in d.shape()]
    ones = [i for i, s in enumerate(shape) if s == 1]
    return Case("Squeeze", {"axes": d.subset(ones)}, [d.values(dtype_of(d, op), shape)],
                known=True)


@makes("Transpose")
def transpose(d, op):
    shape = d.shape()
    permutation = [int(i) for i in d.rng.permutation(len(shape))]
    return {"permutation": [] if d.chance(0.2) else permutation}, [
        d.values(dtype_of(d, op), shape)]


@makes("BroadcastTo")
def broadcast_to(d, op):
    shape = d.shape()
    return {}, [d.values(dtype_of(d, op), d.broadcasting(shape)), dims(shape)]


@makes("Fill")
def fill(d, op):
    return {}, [dims(d.shape()), d.values(dtype_of(d, op), [])]


@makes("Range")
def range_(d, op):
    dtype = dtype_of(d, op)
    whole = dtype in INDICES or d.chance(0.5)
    start = d.integer(-9, 9) if whole else float(d.rng.uniform(-9, 9))
    delta = d.pick([1, 2, 3, -1, -2, 7] if whole else [0.5, -0.25, 1.5])
    limit = start + delta * d.integer(-1, 20)
    scalars = [Value.of(dtype, v) for v in (start, limit, delta)]
    return Case("Range", {}, scalars, ["constant"] * 3)


def _parts(d, shape, axis):
    sizes = [d.size() for _ in range(d.integer(1, 4))]
    return [[s if i == axis else e for i, e in enumerate(shape)] for s in sizes]


@makes("Concat")
def concat(d, op):
    shape, dtype = d.shape(1, 4), dtype_of(d, op)
    d.most = 2000
    axis = d.integer(0, len(shape) - 1)
    parts = _parts(d, shape, axis)
    return {"axis": axis - (len(shape) if d.chance(0.3) else 0)}, [
        d.values(dtype, s) for s in parts]


@makes("ConcatGrad")
def concat_gradient(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(0, len(shape) - 1)
    parts = _parts(d, shape, axis)
    whole = [sum(p[i] for p in parts) if i == axis else s for i, s in enumerate(shape)]
    inputs = [d.values(dtype_of(d, op), whole), *(dims(p) for p in parts)]
    return Case("ConcatGrad", {"axis": axis}, inputs)


@makes("Split")
def split(d, op):
    shape, num = d.shape(1, 4), d.integer(1, 5)
    axis = d.integer(-len(shape), len(shape) - 1)
    shape[axis] = shape[axis] // num * num
    return {"num": num, "axis": axis}, [d.values(dtype_of(d, op), shape)]


@makes("Stack")
def stack(d, op):
    shape, dtype = d.shape(), dtype_of(d, op)
    return {"axis": d.integer(-len(shape) - 1, len(shape))}, [
        d.values(dtype, shape) for _ in range(d.integer(1, 4))]


@makes("Unstack")
def unstack(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(-len(shape), len(shape) - 1)
    shape[axis] = d.integer(1, 6)
    return Case("Unstack", {"num": shape[axis], "axis": axis},
                [d.values(dtype_of(d, op), shape)], known=True)


@makes("Tile")
def tile(d, op):
    shape = [min(s, 17) for s in d.shape(0, 3)]
    return {"multiples": [d.integer(1, 4) for _ in shape]}, [
        d.values(dtype_of(d, op), shape)]


@makes("TileGrad")
def tile_gradient(d, op):
    shape = [min(s, 17) for s in d.shape(0, 3)]
    multiples = [d.integer(1, 4) for _ in shape]
    d.style = "ties" if d.style == "special" else d.style
    return {"multiples": multiples}, [
        d.values(dtype_of(d, op), [s * m for s, m in zip(shape, multiples)])]


@makes("Reverse")
def reverse(d, op):
    shape = d.shape()
    return {"axes": _axes(d, shape)}, [d.values(dtype_of(d, op), shape)]


@makes("Slice")
def slice_(d, op):
    shape = d.shape()
    begin = [d.integer(0, s) for s in shape]
    size = [-1 if d.chance(0.3) else d.integer(0, s - b) for s, b in zip(shape, begin)]
    return {"begin": begin, "size": size}, [d.values(dtype_of(d, op), shape)]


def _strided(d, shape):
    n = d.integer(0, len(shape))
    far = [s + 3 for s in shape[:n]]
    return {"begin": [d.integer(-f, f) for f in far],
            "end": [d.integer(-f, f) for f in far],
            "strides": [d.pick([1, 1, 2, 3, -1, -2, -7]) for _ in far],
            "begin_mask": d.integer(0, 2 ** n - 1), "end_mask": d.integer(0, 2 ** n - 1)}


@makes("StridedSlice")
def strided_slice(d, op):
    shape = d.shape()
    return _strided(d, shape), [d.values(dtype_of(d, op), shape)]


@makes("StridedSliceGrad")
def strided_slice_gradient(d, op):
    shape = d.shape()
    attrs = _strided(d, shape)
    taken = np.empty(shape)[slices(Node("", attrs, []))].shape
    return attrs, [d.values(dtype_of(d, op), list(taken)), dims(shape)]


@makes("Pad")
def pad(d, op):
    shape = [min(s, 17) for s in d.shape()]
    paddings, dtype = [d.integer(0, 3) for _ in range(2 * len(shape))], dtype_of(d, op)
    value = float(d.integer(0, 1 if dtype == "bool" else 3))
    return {"paddings": paddings, "value": value}, [d.values(dtype, shape)]


@makes("OneHot")
def one_hot(d, op):
    depth = d.integer(1, 9)
    dtype = d.pick(["float32", "float64", "int32", "bool", "float16", "int64", "uint8"])
    attrs = {"depth": depth, "dtype": dtype, "off": float(d.integer(0, 1)),
             "on": 1.0 if dtype == "bool" else float(d.integer(1, 3))}
    return attrs, [d.indices(depth, d.shape(0, 3))]


@makes("TopK")
def top_k(d, op):
    shape = d.shape(1, 3)
    shape[-1] = max(1, shape[-1])
    return {"k": d.integer(0, shape[-1])}, [d.values(dtype_of(d, op), shape)]


@makes("InTopK")
def in_top_k(d, op):
    rows, classes = d.size(), d.integer(1, 20)
    d.style = "ties" if d.style == "special" else d.style
    return {"k": d.integer(1, classes + 2)}, [
        d.values(dtype_of(d, op), [rows, classes]), d.indices(classes, [rows])]


def _gathering(d):
    params = [min(s, 16) for s in d.shape(1, 4)]
    axis = d.integer(0, len(params) - 1)
    batch = d.integer(0, axis) if d.chance(0.4) else 0
    params[axis] = max(1, params[axis])
    lead = params[:batch]
    rest = [min(s, 9) for s in d.shape(0, 2)]
    indices = d.indices(params[axis], lead + rest)
    result = params[:axis] + rest + params[axis + 1:]
    given = axis - len(params) if d.chance(0.3) else axis
    return {"axis": given, "batch_dims": batch}, params, indices, result


@makes("Gather")
def gather(d, op):
    attrs, params, indices, _ = _gathering(d)
    return attrs, [d.values(dtype_of(d, op), params), indices]


@makes("ScatterAdd")
def scatter_add(d, op):
    attrs, params, indices, result = _gathering(d)
    dtype = dtype_of(d, op)
    d.style = "ties" if d.style == "special" else d.style
    return attrs, [d.values(dtype, params), indices, d.values(dtype, result)]
