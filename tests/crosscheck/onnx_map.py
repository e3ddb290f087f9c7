"""ONNX's operators in ops of the table."""
import numpy as np

from driver import Value
from text import GraphText

DTYPES = {"float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"}
CONVERSIONS = {}


class Unmapped(Exception):
    """The node says something that no op of the table does."""


def converts(*names):
    def add(function):
        for name in names:
            CONVERSIONS[name] = function
        return function
    return add


class Mapper:
    """A node's operands as nodes of a graph; their values are known, too."""

    def __init__(self, ops, node, inputs):
        import onnx
        self.text, self.op, self.count = GraphText(ops), node.op_type, 0
        self.attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.values, self.feeds, self.operands = [], {}, []
        named = iter(inputs)
        for i, name in enumerate(node.input):
            value = next(named) if name else None
            self.values.append(value)
            self.operands.append(f"x{i}" if name else None)
        self.outputs = [bool(o) for o in node.output]

    def feed(self, i):
        """Operand i as a placeholder."""
        value, name = self.values[i], self.operands[i]
        if name not in self.feeds:
            self.text.placeholder(name, str(value.dtype), value.shape)
            self.feeds[name] = Value(str(value.dtype), np.asarray(value))
        return name

    def has(self, i):
        return i < len(self.values) and self.values[i] is not None

    def ints(self, i, attribute=None, default=None):
        """Operand i, or in older versions an attribute, as a list."""
        if self.has(i):
            return np.asarray(self.values[i]).reshape(-1).tolist()
        return list(self.attrs[attribute]) if attribute in self.attrs else default

    def attr(self, name, default=None):
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def rank(self, i=0):
        return np.ndim(self.values[i])

    def node(self, op, inputs, **attrs):
        self.count += 1
        return self.text.add(f"n{self.count}", op, inputs, attrs)

    def constant(self, array):
        self.count += 1
        array = np.asarray(array)
        return self.text.constant(f"c{self.count}", Value(str(array.dtype), array))

    def number(self, value, like=0):
        return self.constant(np.array(value, dtype=self.values[like].dtype))

    def all(self):
        return [self.feed(i) for i in range(len(self.values)) if self.has(i)]


# --- Elementwise -------------------------------------------------------------

SAME = {n: n for n in """Abs Acos Add Asin Atan Ceil Cos Cosh Div Equal Erf Exp
    Floor Greater Identity IsNaN Less Log Mul Neg Pow Reciprocal Relu Round
    Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh Xor""".split()}
SAME.update(IsNaN="IsNan", And="LogicalAnd", Or="LogicalOr", Not="LogicalNot",
            Xor="LogicalXor", GreaterOrEqual="GreaterEqual", LessOrEqual="LessEqual",
            Where="Select", Sum="AddN", Size="Size")


@converts(*SAME)
def same(m):
    if len({v.dtype for v in m.values[m.op == "Where":]}) > 1:
        raise Unmapped("operands of different dtypes")
    if m.op == "Sum" and len({v.shape for v in m.values}) > 1:
        raise Unmapped("a sum that broadcasts")
    return m.node(SAME[m.op], m.all())


@converts("Max", "Min", "Mean")
def folded(m):
    y, *rest = m.all()
    for x in rest:
        y = m.node({"Max": "Maximum", "Min": "Minimum", "Mean": "Add"}[m.op], [y, x])
    if m.op == "Mean":
        y = m.node("Div", [y, m.number(len(m.values))])
    return m.node("Identity", [y])


@converts("Mod")
def mod(m):
    if m.attr("fmod", 0):
        raise Unmapped("a remainder with the sign of the dividend")
    return m.node("Mod", m.all())


@converts("IsInf")
def is_inf(m):
    if not (m.attr("detect_negative", 1) and m.attr("detect_positive", 1)):
        raise Unmapped("infinities of one sign")
    return m.node("IsInf", m.all())


@converts("LeakyRelu", "Elu")
def alpha(m):
    return m.node(m.op, m.all(), alpha=m.attr("alpha", {"LeakyRelu": 0.01, "Elu": 1.0}[m.op]))


@converts("Selu")
def selu(m):
    if m.attrs:
        raise Unmapped("other constants than the usual")
    return m.node("Selu", m.all())


@converts("PRelu")
def p_relu(m):
    x, slope = m.all()
    positive = m.node("Greater", [x, m.number(0)])
    return m.node("Select", [positive, x, m.node("Mul", [x, slope])])


@converts("Clip")
def clip(m):
    dtype = m.values[0].dtype
    ends = (-np.inf, np.inf) if dtype.kind == "f" else (
        np.iinfo(dtype).min, np.iinfo(dtype).max)
    bounds = [float(m.values[i] if m.has(i) else ends[i - 1]) for i in (1, 2)]
    if bounds[0] > bounds[1]:
        raise Unmapped("no interval")
    return m.node("Clip", [m.feed(0)], lo=bounds[0], hi=bounds[1])


@converts("Cast")
def cast(m):
    from onnx import helper
    if hasattr(helper, "tensor_dtype_to_np_dtype"):
        to = str(helper.tensor_dtype_to_np_dtype(m.attrs["to"]))
    else:  # before onnx 1.13
        from onnx.mapping import TENSOR_TYPE_TO_NP_TYPE
        to = str(TENSOR_TYPE_TO_NP_TYPE[m.attrs["to"]])
    if to not in DTYPES:
        raise Unmapped("a dtype that is not known here")
    return m.node("Cast", m.all(), to=to)


# --- Reductions --------------------------------------------------------------

REDUCE = {"ReduceSum": "Sum", "ReduceMean": "Mean", "ReduceMax": "Max",
          "ReduceMin": "Min", "ReduceProd": "Prod", "ReduceLogSumExp": "LogSumExp",
          "ReduceL1": "Sum", "ReduceL2": "Sum", "ReduceSumSquare": "Sum",
          "ReduceLogSum": "Sum"}


@converts(*REDUCE)
def reduce(m):
    axes = m.ints(1, "axes", [])
    if not axes and m.attr("noop_with_empty_axes", 0):
        return m.node("Identity", [m.feed(0)])
    x = m.feed(0)
    if m.values[0].dtype == bool:
        raise Unmapped("a reduction of bool by way of its order")
    before = {"ReduceL1": "Abs", "ReduceL2": "Square", "ReduceSumSquare": "Square"}
    after = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log"}
    if m.op in before:
        x = m.node(before[m.op], [x])
    y = m.node(REDUCE[m.op], [x], axes=axes, keep_dims=bool(m.attr("keepdims", 1)))
    return m.node(after[m.op], [y]) if m.op in after else y


@converts("ArgMax", "ArgMin")
def arg(m):
    if m.attr("select_last_index", 0):
        raise Unmapped("the last of equals")
    return m.node(m.op, m.all(), axis=m.attr("axis", 0), keep_dims=bool(m.attr("keepdims", 1)))


@converts("CumSum")
def cum_sum(m):
    return m.node("CumSum", [m.feed(0)], axis=m.ints(1)[0],
                  exclusive=bool(m.attr("exclusive", 0)), reverse=bool(m.attr("reverse", 0)))


@converts("TopK")
def top_k(m):
    if m.attr("axis", -1) not in (-1, m.rank() - 1) or not m.attr("largest", 1):
        raise Unmapped("the smallest, or of another axis than the last")
    y = m.node("TopK", [m.feed(0)], k=m.ints(1)[0])
    return [y, y + ":1"]


@converts("Softmax", "LogSoftmax")
def softmax(m):
    return m.node(m.op, m.all(), axis=m.attr("axis", -1))


# --- Shapes and movement -----------------------------------------------------


@converts("Concat")
def concat(m):
    return m.node("Concat", m.all(), axis=m.attrs["axis"])


@converts("Expand")
def expand(m):
    shape = np.broadcast_shapes(m.values[0].shape, tuple(m.ints(1)))
    return m.node("BroadcastTo", [m.feed(0), m.constant(np.array(shape, np.int64))])


@converts("Flatten")
def flatten(m):
    shape, axis = m.values[0].shape, m.attr("axis", 1)
    axis += m.rank() if axis < 0 else 0
    to = [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))]
    return m.node("Reshape", [m.feed(0), m.constant(np.array(to, np.int64))])


@converts("Reshape")
def reshape(m):
    shape = m.ints(1)
    if not m.attr("allowzero", 0):
        shape = [m.values[0].shape[i] if s == 0 else s for i, s in enumerate(shape)]
    return m.node("Reshape", [m.feed(0), m.constant(np.array(shape, np.int64))])


@converts("Squeeze")
def squeeze(m):
    return m.node("Squeeze", [m.feed(0)], axes=m.ints(1, "axes", []))


@converts("Unsqueeze")
def unsqueeze(m):
    axes = m.ints(1, "axes")
    rank, y = m.rank() + len(axes), m.feed(0)
    for axis in sorted(a % rank for a in axes):
        y = m.node("ExpandDims", [y], axis=axis)
    return y


@converts("Transpose")
def transpose(m):
    return m.node("Transpose", m.all(), permutation=m.attr("perm", []))


@converts("Tile")
def tile(m):
    return m.node("Tile", [m.feed(0)], multiples=m.ints(1))


@converts("Shape")
def shape(m):
    y = m.node("ShapeOf", m.all())
    if "start" not in m.attrs and "end" not in m.attrs:
        return y
    begin, end = m.attr("start", 0), m.attr("end")
    return m.node("StridedSlice", [y], begin=[begin], end=[end or 0], strides=[1],
                  end_mask=0 if "end" in m.attrs else 1)


@converts("Slice")
def slice_(m):
    starts, ends = m.ints(1), m.ints(2)
    axes = m.ints(3, None, list(range(len(starts))))
    steps = m.ints(4, None, [1] * len(starts))
    whole = {"begin": [0] * m.rank(), "end": [0] * m.rank(), "strides": [1] * m.rank()}
    mask = 2 ** m.rank() - 1
    for start, end, axis, step in zip(starts, ends, axes, steps):
        d = axis % m.rank()
        # Beyond the front is -infinity here, the end counted from the end in NumPy.
        whole["begin"][d], whole["end"][d], whole["strides"][d] = start, end, step
        mask &= ~(1 << d)
    return m.node("StridedSlice", [m.feed(0)], **whole, begin_mask=mask, end_mask=mask)


@converts("Split")
def split(m):
    axis, shape = m.attr("axis", 0), list(m.values[0].shape)
    sizes = m.ints(1, "split", None)
    num = len(m.outputs)
    if sizes is None and shape[axis] % num == 0:
        y = m.node("Split", [m.feed(0)], num=num, axis=axis)
    elif sizes is None:
        raise Unmapped("parts that are not equal")
    else:
        shapes = [[s if d == axis % m.rank() else e for d, e in enumerate(shape)]
                  for s in sizes]
        y = m.node("ConcatGrad", [m.feed(0), *(
            m.constant(np.array(s, np.int64)) for s in shapes)], axis=axis)
    return [y if i == 0 else f"{y}:{i}" for i in range(num)]


@converts("Pad")
def pad(m):
    if m.attr("mode", "constant") != "constant" or m.has(3):
        raise Unmapped("padding by reflection or of some axes")
    pads = m.ints(1)
    pairs = [p for i in range(m.rank()) for p in (pads[i], pads[i + m.rank()])]
    return m.node("Pad", [m.feed(0)], paddings=pairs,
                  value=float(m.values[2]) if m.has(2) else 0.0)


@converts("Gather")
def gather(m):
    axis = m.attr("axis", 0)
    limit = m.values[0].shape[axis]
    # Indices that count from the end are ONNX's alone.
    indices = np.where(m.values[1] < 0, m.values[1] + limit, m.values[1])
    return m.node("Gather", [m.feed(0), m.constant(indices)], axis=axis)


@converts("OneHot")
def one_hot(m):
    indices, depth, values = m.values
    if m.attr("axis", -1) not in (-1, np.ndim(indices)):
        raise Unmapped("one hot along another axis than the last")
    depth = int(np.reshape(depth, ()))
    indices = indices.astype(np.int64)
    if indices.max(initial=0) >= depth or indices.min(initial=0) < -depth:
        raise Unmapped("indices out of range, an error here")
    return m.node("OneHot", [m.constant(np.where(indices < 0, indices + depth, indices))],
                  depth=depth, off=float(values[0]), on=float(values[1]),
                  dtype=str(values.dtype))


@converts("Range")
def range_(m):
    if str(m.values[0].dtype) == "float16":
        raise Unmapped("a range in half")
    return m.node("Range", [m.constant(v) for v in m.values])


@converts("ConstantOfShape")
def constant_of_shape(m):
    from onnx import numpy_helper
    value = numpy_helper.to_array(m.attrs["value"]) if "value" in m.attrs else \
        np.zeros(1, np.float32)
    return m.node("Fill", [m.constant(m.values[0]), m.constant(value.reshape(()))])


# --- Networks ----------------------------------------------------------------


@converts("MatMul")
def matmul(m):
    if min(m.rank(0), m.rank(1)) < 2:
        raise Unmapped("a product with a vector")
    return m.node("BatchMatMul", m.all())


@converts("Gemm")
def gemm(m):
    y = m.node("MatMul", [m.feed(0), m.feed(1)], transpose_a=bool(m.attr("transA", 0)),
               transpose_b=bool(m.attr("transB", 0)))
    if m.attr("alpha", 1.0) != 1:
        y = m.node("Mul", [y, m.number(m.attr("alpha"))])
    if m.has(2):
        c = m.feed(2)
        if m.attr("beta", 1.0) != 1:
            c = m.node("Mul", [c, m.number(m.attr("beta"))])
        y = m.node("Add", [y, c])
    return y


def _to_last(m, x):
    return m.node("Transpose", [x], permutation=[0, *range(2, m.rank()), 1])


def _to_second(m, x):
    return m.node("Transpose", [x], permutation=[0, m.rank() - 1, *range(1, m.rank() - 1)])


def _window(m):
    """strides, padding and explicit_padding of a two-dimensional window."""
    if m.rank() != 4:
        raise Unmapped("windows of other than two dimensions")
    if not str(m.values[0].dtype).startswith("float"):
        raise Unmapped("windows over integers")
    auto = m.attr("auto_pad", "NOTSET")
    if auto == "SAME_LOWER":
        raise Unmapped("the odd row of padding at the front")
    attrs = {"strides": m.attr("strides", [1, 1])}
    if auto == "SAME_UPPER":
        return {**attrs, "padding": "SAME"}
    if auto == "VALID":
        return {**attrs, "padding": "VALID"}
    top, left, bottom, right = m.attr("pads", [0, 0, 0, 0])
    return {**attrs, "padding": "EXPLICIT", "explicit_padding": [top, bottom, left, right]}


@converts("Conv")
def conv(m):
    attrs = _window(m)
    filter = m.node("Transpose", [m.feed(1)], permutation=[2, 3, 1, 0])
    y = m.node("Conv2D", [_to_last(m, m.feed(0)), filter], groups=m.attr("group", 1),
               dilations=m.attr("dilations", [1, 1]), **attrs)
    y = m.node("BiasAdd", [y, m.feed(2)]) if m.has(2) else y
    return _to_second(m, y)


@converts("ConvTranspose")
def conv_transpose(m):
    """The gradient of a convolution whose input has the result's shape."""
    attrs = _window(m)
    if "output_shape" in m.attrs or (m.attr("group", 1) > 1 and attrs["padding"] == "SAME"):
        raise Unmapped("padding that follows from the result's shape")
    (n, _, h, w), (_, channels, *kernel) = m.values[0].shape, m.values[1].shape
    dilations, more = m.attr("dilations", [1, 1]), m.attr("output_padding", [0, 0])
    pads = attrs.get("explicit_padding", [0, 0, 0, 0])
    size = []
    for d, inputs in enumerate((h, w)):
        stride, extent = attrs["strides"][d], (kernel[d] - 1) * dilations[d] + 1
        size.append(inputs * stride if attrs["padding"] == "SAME" else
                    stride * (inputs - 1) + extent + more[d] - pads[2 * d] - pads[2 * d + 1])
    shape = [n, *size, channels * m.attr("group", 1)]
    filter = m.node("Transpose", [m.feed(1)], permutation=[2, 3, 1, 0])
    y = m.node("Conv2DBackpropInput",
               [_to_last(m, m.feed(0)), filter, m.constant(np.array(shape, np.int64))],
               groups=m.attr("group", 1), dilations=dilations, **attrs)
    y = m.node("BiasAdd", [y, m.feed(2)]) if m.has(2) else y
    return _to_second(m, y)


@converts("MaxPool", "AveragePool")
def pool(m):
    attrs = _window(m)
    if m.attr("ceil_mode", 0) or m.attr("count_include_pad", 0) or len(m.outputs) > 1 or \
            m.attr("dilations", [1, 1]) != [1, 1]:
        raise Unmapped("a pool that rounds up, counts padding, is dilated or says where")
    y = m.node({"AveragePool": "AvgPool"}.get(m.op, m.op), [_to_last(m, m.feed(0))],
               window=m.attrs["kernel_shape"], **attrs)
    return _to_second(m, y)


@converts("GlobalAveragePool", "GlobalMaxPool")
def global_pool(m):
    return m.node("Mean" if "Average" in m.op else "Max", m.all(), keep_dims=True,
                  axes=list(range(2, m.rank())))


@converts("BatchNormalization")
def batch_normalization(m):
    x, *vectors = m.all()
    x = _to_last(m, x)
    epsilon = m.attr("epsilon", 1e-5)
    if m.attr("training_mode", 0):
        raise Unmapped("a running variance that is the biased one")
    return _to_second(m, m.node("BatchNormInference", [x, *vectors], epsilon=epsilon))


@converts("LayerNormalization")
def layer_normalization(m):
    if m.attr("axis", -1) not in (-1, m.rank() - 1) or not m.has(2):
        raise Unmapped("normalisation over more than the last axis")
    y = m.node("LayerNorm", m.all(), epsilon=m.attr("epsilon", 1e-5))
    return [y] + [m.node("ExpandDims", [f"{y}:{i}"], axis=-1) for i in (1, 2)]


@converts("Dropout")
def dropout(m):
    training = bool(m.values[2]) if m.has(2) else False
    if (training and (not m.has(1) or float(m.values[1]) > 0)) or len(m.outputs) > 1:
        raise Unmapped("random, or a mask of inference")
    return m.node("Identity", [m.feed(0)])


@converts("SoftmaxCrossEntropyLoss")
def cross_entropy_loss(m):
    if m.has(2) or "ignore_index" in m.attrs or len(m.outputs) > 1:
        raise Unmapped("weights of classes, ignored labels or a second output")
    rank = m.rank()
    logits = m.node("Transpose", [m.feed(0)], permutation=[0, *range(2, rank), 1])
    y = m.node("SparseSoftmaxCrossEntropy", [logits, m.feed(1)])
    reduction = m.attr("reduction", "mean")
    return y if reduction == "none" else m.node(reduction.capitalize(), [y])
