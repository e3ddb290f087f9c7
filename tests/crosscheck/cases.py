"""Random cases of single ops, attributes and operands for a node; here those of
elementwise ops."""
import math
from dataclasses import dataclass, field


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


def dtype_of(d, op, name="T"):
    return d.dtype(op["types"][name])


# --- Elementwise -------------------------------------------------------------

UNARY = """Neg Abs Sign Square Exp Expm1 Log Log1p Sqrt Rsqrt Reciprocal Sin Cos
    Tan Asin Acos Atan Sinh Cosh Tanh Erf Floor Ceil Round IsNan IsInf IsFinite
    LogicalNot Identity StopGradient Copy AllReduce Sigmoid Softplus Softsign Relu Relu6
    LeakyRelu Elu Selu Gelu Silu ZerosLike OnesLike ShapeOf Rank Size""".split()
WIDE = "Neg Abs Sign Square Floor Ceil Round Sin Cos Atan Tanh Erf Sigmoid " \
       "Softplus Softsign Relu Relu6 LeakyRelu Elu Selu Gelu Silu".split()


@makes(*UNARY)
def unary(d, op):
    lo, hi = _range(op, 0)
    if op["name"] in WIDE and d.chance(0.5):
        lo, hi = -12, 12
    return _activation_attrs(d, op), [d.values(dtype_of(d, op), d.shape(), lo, hi)]


@makes("AllGather", "ReduceScatter", "AllToAll", "Broadcast", "Reduce")
def over_one_worker(d, op):
    dtype = dtype_of(d, op)
    attrs = {}
    if "mean" in op["attrs"] and dtype not in ("int32", "int64"):
        attrs["mean"] = d.chance(0.5)
    return attrs, [d.values(dtype, d.shape(lo=1))]


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
    shape, dtype = d.shape(), dtype_of(d, op)
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
    dtype = dtype_of(d, op)
    if op["name"] == "Pow" and dtype not in FLOATS and d.style == "plain":
        d.style = "ties"
    ranges = [_range(op, 0), _range(op, 1)]
    return {}, [d.values(dtype, s, *r) for s, r in zip((a, b), ranges)]


@makes("Select")
def select(d, op):
    whole, dtype = d.shape(), dtype_of(d, op)
    shapes = [d.broadcasting(whole) for _ in range(3)]
    shapes[d.integer(0, 2)] = whole
    return {}, [d.values("bool", shapes[0])] + [d.values(dtype, s) for s in shapes[1:]]


@makes("AddN")
def add_n(d, op):
    shape, dtype = d.shape(), dtype_of(d, op)
    return {}, [d.values(dtype, shape) for _ in range(d.integer(1, 5))]


@makes("Clip")
def clip(d, op):
    lo = d.pick([-4.5, -1.0, 0.0, -math.inf, -300.0])
    hi = max(lo, d.pick([3.0, 1.0, 0.0, math.inf, 300.0]))
    dtype = dtype_of(d, op)
    if dtype not in FLOATS:  # it must be able to hold bounds that are finite
        least = 0 if dtype == "uint8" else -100
        lo = lo if math.isinf(lo) else float(max(math.floor(lo), least))
        hi = hi if math.isinf(hi) else float(max(min(int(hi), 100), lo))
    return {"lo": lo, "hi": hi}, [d.values(dtype, d.shape(), -9, 9)]


@makes("Cast")
def cast(d, op):
    dtype = dtype_of(d, op)
    to = d.pick(op["types"]["T"])
    lo, hi = d.pick([(-3, 3), (-100, 100), (-1e5, 1e5), (-1e20, 1e20)])
    return {"to": to}, [d.values(dtype, d.shape(), lo, hi)]


@makes("CastList")
def cast_list(d, op):
    hi = d.pick([1, 1e5])
    return {"to": d.pick(HALVES)}, [d.values("float32", d.shape(), -hi, hi)
                                    for _ in range(d.integer(1, 4))]


@makes("TurnFilters")
def turn_filters(d, op):
    attrs = {"to": d.pick(FLOATS), "layout": d.pick(["OHWI", "HWIO"])}
    dtype = dtype_of(d, op)
    shapes = [[d.pick([1, 2, 3, 5, 33, 70]) for _ in range(4)]
              for _ in range(d.integer(1, 4))]
    return attrs, [d.values(dtype, shape) for shape in shapes]


@makes("CastPad")
def cast_pad(d, op):
    shape = d.shape(1, 4)
    axis = d.integer(0, len(shape) - 1)
    attrs = {"to": d.pick(FLOATS), "axis": axis, "size": shape[axis] + d.integer(0, 5)}
    return Case("CastPad", attrs, [d.values(dtype_of(d, op), shape)], known=True)


@makes("AllFinite")
def all_finite(d, op):
    dtype = dtype_of(d, op)
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
    dtype = dtype_of(d, op)
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
