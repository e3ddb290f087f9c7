"""Random cases of single ops: attributes and operands for a node."""
import math
from dataclasses import dataclass, field

import numpy as np

from draw import INDICES, compute_type, dims
from driver import FLOATS, HALVES, Value

MAKERS = {}


@dataclass
class Case:
    op: str
    attrs: dict
    inputs: list
    # "feed", "constant" or "variable" for each; feeds and constants by chance
    # where it is not given.
    roles: list = None
    known: bool = False  # all dimensions must be known when the graph is built
    extra: dict = field(default_factory=dict)


def makes(*names):
    def add(function):
        for name in names:
            MAKERS[name] = function
        return function
    return add


def make(d, op):
    made = MAKERS[op["name"]](d, op)
    return made if isinstance(made, Case) else Case(op["name"], *made)


def _range(op, i):
    """The range that the record's first probe gives input i."""
    probe = op["probes"][0]["inputs"][i]
    return probe["lo"], probe["hi"]


def _dtype(d, op, name="T"):
    return d.dtype(op["types"][name])


# --- Elementwise -------------------------------------------------------------

UNARY = """Neg Abs Sign Square Exp Expm1 Log Log1p Sqrt Rsqrt Reciprocal Sin Cos
    Tan Asin Acos Atan Sinh Cosh Tanh Erf Floor Ceil Round IsNan IsInf IsFinite
    LogicalNot Identity StopGradient Copy Sigmoid Softplus Softsign Relu Relu6
    LeakyRelu Elu Selu Gelu Silu ZerosLike OnesLike Shape Rank Size""".split()
WIDE = "Neg Abs Sign Square Floor Ceil Round Sin Cos Atan Tanh Erf Sigmoid " \
       "Softplus Softsign Relu Relu6 LeakyRelu Elu Selu Gelu Silu".split()


@makes(*UNARY)
def unary(d, op):
    lo, hi = _range(op, 0)
    if op["name"] in WIDE and d.chance(0.5):
        lo, hi = -12, 12
    return _activation_attrs(d, op), [d.values(_dtype(d, op), d.shape(), lo, hi)]


def _activation_attrs(d, op):
    attrs = {}
    if "alpha" in op["attrs"] and d.chance(0.7):
        attrs["alpha"] = d.pick([0.0, 0.1, 0.3, 1.0, 1.5])
    if "approximate" in op["attrs"]:
        attrs["approximate"] = d.chance(0.5)
    return attrs


@makes("TanhGrad", "SigmoidGrad", "SoftplusGrad", "ReluGrad", "Relu6Grad",
       "LeakyReluGrad", "EluGrad", "SeluGrad", "GeluGrad", "SiluGrad")
def activation_gradient(d, op):
    shape, dtype = d.shape(), _dtype(d, op)
    hi = 1 if op["name"] in ("TanhGrad", "SigmoidGrad") else 7
    if d.style == "special":  # 0 * inf in a result that is never asked for
        d.style = "ties"
    return _activation_attrs(d, op), [d.values(dtype, shape),
                                      d.values(dtype, shape, -1, hi)]


@makes("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Maximum", "Minimum",
       "SquaredDifference", "Atan2", "Equal", "NotEqual", "Less", "LessEqual",
       "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalXor")
def binary(d, op):
    whole = d.shape()
    a, b = whole, d.broadcasting(whole)
    if d.chance(0.4):
        a = [1 if d.chance(0.3) else s for s in whole]
    if d.chance(0.5):
        a, b = b, a
    dtype = _dtype(d, op)
    if op["name"] == "Pow" and dtype not in FLOATS and d.style == "plain":
        d.style = "ties"
    ranges = [_range(op, 0), _range(op, 1)]
    return {}, [d.values(dtype, s, *r) for s, r in zip((a, b), ranges)]


@makes("Select")
def select(d, op):
    whole, dtype = d.shape(), _dtype(d, op)
    shapes = [d.broadcasting(whole) for _ in range(3)]
    shapes[d.integer(0, 2)] = whole
    return {}, [d.values("bool", shapes[0])] + [d.values(dtype, s) for s in shapes[1:]]


@makes("AddN")
def add_n(d, op):
    shape, dtype = d.shape(), _dtype(d, op)
    return {}, [d.values(dtype, shape) for _ in range(d.integer(1, 5))]


@makes("Clip")
def clip(d, op):
    lo = d.pick([-4.5, -1.0, 0.0, -math.inf, -300.0])
    hi = max(lo, d.pick([3.0, 1.0, 0.0, math.inf, 300.0]))
    dtype = _dtype(d, op)
    if dtype not in FLOATS:
        lo, hi = (x if math.isinf(x) else float(math.floor(x)) for x in (lo, hi))
    return {"lo": lo, "hi": hi}, [d.values(dtype, d.shape(), -9, 9)]


@makes("Cast")
def cast(d, op):
    dtype = _dtype(d, op)
    to = d.pick(op["types"]["T"])
    lo, hi = d.pick([(-3, 3), (-100, 100), (-1e5, 1e5), (-1e20, 1e20)])
    return {"to": to}, [d.values(dtype, d.shape(), lo, hi)]


@makes("CastList")
def cast_list(d, op):
    hi = d.pick([1, 1e5])
    return {"to": d.pick(HALVES)}, [d.values("float32", d.shape(), -hi, hi)
                                    for _ in range(d.integer(1, 4))]


@makes("CastPad")
def cast_pad(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(0, len(shape) - 1)
    attrs = {"to": d.pick(FLOATS), "axis": axis, "size": shape[axis] + d.integer(0, 5)}
    return Case("CastPad", attrs, [d.values(_dtype(d, op), shape)], known=True)


@makes("AllFinite")
def all_finite(d, op):
    dtype = _dtype(d, op)
    return {}, [d.values(dtype, d.shape()) for _ in range(d.integer(1, 4))]


@makes("AllFiniteScaled")
def all_finite_scaled(d, op):
    scale = Value.of("float32", d.pick([0.5, 1e35, 1e38, 0.0, math.inf]))
    tensors = [d.values(d.pick(["float32", *HALVES]), d.shape(), -1e4, 1e4)
               for _ in range(d.integer(1, 4))]
    return {}, [scale, *tensors]


CHAINS = {1: "Neg Abs Square Exp Tanh Sigmoid Relu Relu6 Softplus Gelu Silu Sin "
             "GeluTanh LeakyRelu<0.25> Clip<-0.5,0.75> Elu<0.7>".split(),
          2: "Add Sub Mul Maximum Minimum SquaredDifference".split()}


def _program(d, inputs):
    """Steps over what was computed before, values kept moderate."""
    steps, floats, bools = [], list(range(inputs)), []
    for value in range(inputs, inputs + d.integer(1, 7)):
        kind = d.integer(0, 9)
        if kind < 4:
            step = f"{d.pick(CHAINS[1])}({d.pick(floats)})"
        elif kind < 8:
            step = f"{d.pick(CHAINS[2])}({d.pick(floats)},{d.pick(floats)})"
        elif kind == 8 or not bools:
            step = f"{d.pick(['Greater', 'LessEqual'])}({d.pick(range(inputs))}," \
                   f"{d.pick(range(inputs))})"
            bools.append(value)
        else:
            step = f"Select({d.pick(bools)},{d.pick(floats)},{d.pick(floats)})"
        steps.append(step)
        if value not in bools:
            floats.append(value)
    results = [v for v in floats if v >= inputs]
    if not results:
        return _program(d, inputs)
    return "; ".join(steps), results


@makes("Fused")
def fused(d, op):
    d.style = "ties" if d.style == "special" else d.style
    whole, count = d.shape(), d.integer(1, 4)
    program, results = _program(d, count)
    attrs = {"program": program, "outputs": d.subset(results, 1), "shape": whole}
    dtype = _dtype(d, op)
    return attrs, [d.values(dtype, d.broadcasting(whole), -1, 1) for _ in range(count)]


@makes("FusedSum")
def fused_sum(d, op):
    d.style = "ties" if d.style == "special" else d.style
    d.most = 100_000
    case = Case("FusedSum", *fused(d, op))
    whole = [max(s, 1) for s in case.attrs["shape"]]
    if len(whole) < 2:
        whole = [d.pick([3, 60, 500]), d.pick([2, 100, 300])]
    cut = d.integer(0, len(whole))
    leading = d.chance(0.5)
    to = whole[cut:] if leading else whole[:cut]
    if d.chance(0.3):
        to = [1] * cut + to if leading else to + [1] * (len(whole) - cut)
    outputs = case.attrs["outputs"]
    case.attrs.update(shape=whole, sum="leading" if leading else "trailing",
                      sum_shape=to, sum_scale=d.pick([1.0, 0.25, 1e-3]),
                      outputs=outputs + ([outputs[0]] if d.chance(0.3) else []))
    dtype = case.inputs[0].dtype
    case.inputs = [d.values(dtype, d.broadcasting(whole), -1, 1) for _ in case.inputs]
    return case


# --- Reductions --------------------------------------------------------------


def _axes(d, shape, empty=True):
    axes = d.subset(range(len(shape)), 0 if empty else 1)
    return [a - len(shape) if d.chance(0.3) else a for a in axes]


@makes("Sum", "Prod", "Mean", "Max", "Min", "LogSumExp", "Any", "All")
def reduction(d, op):
    shape = d.shape()
    attrs = {"axes": _axes(d, shape), "keep_dims": d.chance(0.5)}
    lo, hi = (0.5, 1.5) if op["name"] == "Prod" and d.style == "plain" else (-2, 2)
    return attrs, [d.values(_dtype(d, op), shape, lo, hi)]


@makes("ProdGrad")
def prod_grad(d, op):
    shape = [min(s, 9) for s in d.shape(1, 3)]
    axis = d.integer(0, len(shape) - 1)
    small = [1 if i == axis else s for i, s in enumerate(shape)]
    dtype = _dtype(d, op)
    d.style = "ties" if d.style == "special" else d.style
    return {"axis": axis - (len(shape) if d.chance(0.3) else 0)}, [
        d.values(dtype, small), d.values(dtype, shape)]


@makes("ArgMax", "ArgMin")
def arg(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(-len(shape), len(shape) - 1)
    shape[axis] = max(1, shape[axis])
    return {"axis": axis, "keep_dims": d.chance(0.5)}, [d.values(_dtype(d, op), shape)]


@makes("CumSum")
def cum_sum(d, op):
    shape = d.shape(1, 4)
    attrs = {"axis": d.integer(-len(shape), len(shape) - 1),
             "exclusive": d.chance(0.5), "reverse": d.chance(0.5)}
    if d.style == "special":
        d.style = "ties"
    return attrs, [d.values(_dtype(d, op), shape)]


@makes("SumTo")
def sum_to(d, op):
    shape = d.shape()
    return {}, [d.values(_dtype(d, op), shape),
                Value.of(d.pick(INDICES), np.array(d.broadcasting(shape)))]


@makes("L2Loss")
def l2_loss(d, op):
    return {}, [d.values(_dtype(d, op), d.shape())]


@makes("Softmax", "LogSoftmax")
def softmax(d, op):
    shape = d.shape(1, 4)
    shift = d.pick([0, 0, 100, -1000, 10000])
    d.style = "plain" if d.style == "special" else d.style
    return {"axis": d.integer(-len(shape), len(shape) - 1)}, [
        d.values(_dtype(d, op), shape, shift - 3, shift + 3)]


# --- Shapes and movement -----------------------------------------------------


@makes("Reshape")
def reshape(d, op):
    shape = d.shape()
    rest, to = int(np.prod(shape, dtype=np.int64)), []
    while rest > 1 and d.chance(0.8):
        divisors = [k for k in range(1, min(rest, 64) + 1) if rest % k == 0]
        to.append(d.pick(divisors))
        rest //= to[-1]
    to.insert(d.integer(0, len(to)), rest)
    if rest and 0 not in to and d.chance(0.4):
        to[d.integer(0, len(to) - 1)] = -1
    return {}, [d.values(_dtype(d, op), shape), dims(to)]


@makes("ExpandDims")
def expand_dims(d, op):
    shape = d.shape()
    return {"axis": d.integer(-len(shape) - 1, len(shape))}, [
        d.values(_dtype(d, op), shape)]


@makes("Squeeze")
def squeeze(d, op):
    shape = [1 if d.chance(0.4) else s for s in d.shape()]
    ones = [i for i, s in enumerate(shape) if s == 1]
    return Case("Squeeze", {"axes": d.subset(ones)}, [d.values(_dtype(d, op), shape)],
                known=True)


@makes("Transpose")
def transpose(d, op):
    shape = d.shape()
    permutation = [int(i) for i in d.rng.permutation(len(shape))]
    return {"permutation": [] if d.chance(0.2) else permutation}, [
        d.values(_dtype(d, op), shape)]


@makes("BroadcastTo")
def broadcast_to(d, op):
    shape = d.shape()
    return {}, [d.values(_dtype(d, op), d.broadcasting(shape)), dims(shape)]


@makes("Fill")
def fill(d, op):
    return {}, [dims(d.shape()), d.values(_dtype(d, op), [])]


@makes("Range")
def range_(d, op):
    dtype = _dtype(d, op)
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
    shape, dtype = d.shape(1, 4), _dtype(d, op)
    d.most = 2000
    axis = d.integer(0, len(shape) - 1)
    parts = _parts(d, shape, axis)
    return {"axis": axis - (len(shape) if d.chance(0.3) else 0)}, [
        d.values(dtype, s) for s in parts]


@makes("ConcatGradient")
def concat_gradient(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(0, len(shape) - 1)
    parts = _parts(d, shape, axis)
    whole = [sum(p[i] for p in parts) if i == axis else s for i, s in enumerate(shape)]
    inputs = [d.values(_dtype(d, op), whole), *(dims(p) for p in parts)]
    return Case("ConcatGradient", {"axis": axis}, inputs)


@makes("Split")
def split(d, op):
    shape, num = d.shape(1, 4), d.integer(1, 5)
    axis = d.integer(-len(shape), len(shape) - 1)
    shape[axis] = shape[axis] // num * num
    return {"num": num, "axis": axis}, [d.values(_dtype(d, op), shape)]


@makes("Stack")
def stack(d, op):
    shape, dtype = d.shape(), _dtype(d, op)
    return {"axis": d.integer(-len(shape) - 1, len(shape))}, [
        d.values(dtype, shape) for _ in range(d.integer(1, 4))]


@makes("Unstack")
def unstack(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(-len(shape), len(shape) - 1)
    shape[axis] = d.integer(1, 6)
    return Case("Unstack", {"num": shape[axis], "axis": axis},
                [d.values(_dtype(d, op), shape)], known=True)


@makes("Tile")
def tile(d, op):
    shape = [min(s, 17) for s in d.shape(0, 3)]
    return {"multiples": [d.integer(1, 4) for _ in shape]}, [
        d.values(_dtype(d, op), shape)]


@makes("TileGradient")
def tile_gradient(d, op):
    shape = [min(s, 17) for s in d.shape(0, 3)]
    multiples = [d.integer(1, 4) for _ in shape]
    d.style = "ties" if d.style == "special" else d.style
    return {"multiples": multiples}, [
        d.values(_dtype(d, op), [s * m for s, m in zip(shape, multiples)])]


@makes("Reverse")
def reverse(d, op):
    shape = d.shape()
    return {"axes": _axes(d, shape)}, [d.values(_dtype(d, op), shape)]


@makes("Slice")
def slice_(d, op):
    shape = d.shape()
    begin = [d.integer(0, s) for s in shape]
    size = [-1 if d.chance(0.3) else d.integer(0, s - b) for s, b in zip(shape, begin)]
    return {"begin": begin, "size": size}, [d.values(_dtype(d, op), shape)]


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
    return _strided(d, shape), [d.values(_dtype(d, op), shape)]


@makes("StridedSliceGradient")
def strided_slice_gradient(d, op):
    from reference import Node
    from reference_shape import _slices
    shape = d.shape()
    attrs = _strided(d, shape)
    taken = np.empty(shape)[_slices(Node("", attrs, []))].shape
    return attrs, [d.values(_dtype(d, op), list(taken)), dims(shape)]


@makes("Pad")
def pad(d, op):
    shape = [min(s, 17) for s in d.shape()]
    paddings = [d.integer(0, 3) for _ in range(2 * len(shape))]
    return {"paddings": paddings, "value": float(d.integer(0, 3))}, [
        d.values(_dtype(d, op), shape)]


@makes("OneHot")
def one_hot(d, op):
    depth = d.integer(1, 9)
    attrs = {"depth": depth, "dtype": d.pick(["float32", "float64", "int32", "bool",
                                              "float16", "int64", "uint8"]),
             "on": float(d.integer(1, 3)), "off": float(d.integer(0, 1))}
    return attrs, [d.indices(depth, d.shape(0, 3))]


@makes("TopK")
def top_k(d, op):
    shape = d.shape(1, 3)
    shape[-1] = max(1, shape[-1])
    return {"k": d.integer(1, shape[-1])}, [d.values(_dtype(d, op), shape)]


@makes("InTopK")
def in_top_k(d, op):
    rows, classes = d.size(), d.integer(1, 20)
    d.style = "ties" if d.style == "special" else d.style
    return {"k": d.integer(1, classes + 2)}, [
        d.values(_dtype(d, op), [rows, classes]), d.indices(classes, [rows])]


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
    return attrs, [d.values(_dtype(d, op), params), indices]


@makes("ScatterAdd")
def scatter_add(d, op):
    attrs, params, indices, result = _gathering(d)
    dtype = _dtype(d, op)
    d.style = "ties" if d.style == "special" else d.style
    return attrs, [d.values(dtype, params), indices, d.values(dtype, result)]
