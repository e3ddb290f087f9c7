"""Random graphs of ops that read, compute, move and write."""
import numpy as np

from draw import dims
from driver import Value
from graph_rule import Item, MUTATES

SHAPES = [[], [3], [4, 3], [4, 1], [2, 4, 3]]
UNARY = {"float": ["Tanh", "Sin", "Neg", "Abs", "Relu", "Sigmoid", "Identity",
                   "StopGradient", "LeakyRelu", "Gelu", "Cos", "Erf"],
         "int": ["Neg", "Abs", "Square", "Sign", "Identity", "StopGradient"]}
BINARY = ["Add", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"]


class Builder:
    """Adds random nodes; `outputs` are what later ones may use."""

    def __init__(self, d, count):
        self.d, self.items, self.outputs = d, {}, []
        self.dtype = d.pick(["float64", "float64", "float32", "int64", "int32"])
        self.kind = "float" if self.dtype.startswith("float") else "int"
        self.last_write, self.variables = {}, {}
        self.after_feeds, self.together = d.chance(0.15), d.chance(0.5)
        self._leaves()
        for _ in range(count):
            self.d.pick([self._unary, self._binary, self._binary, self._reduce,
                         self._move, self._move, self._product, self._select,
                         self._write, self._write, self._again, self._group])()

    # -- Nodes ----------------------------------------------------------------

    def add(self, op, inputs=(), attrs=None, types=(), controls=(), usable=True):
        d = self.d
        name = f"{op.lower()}{len(self.items)}"
        controls = list(controls)
        leaf = op in ("Placeholder", "Variable", "Const")
        before = [n for n, i in self.items.items()
                  if self.after_feeds or i.op != "Placeholder"]
        while not leaf and before and d.chance(0.15):
            controls.append(d.pick(before))
        # What an op updates must be on one device.
        device = None if op in MUTATES or op == "Variable" and self.together else \
            d.pick([None, "/cpu:0", "/cpu:1"])
        item = Item(name, op, list(inputs), dict(attrs or {}), sorted(set(controls)),
                    list(types), device)
        self.items[name] = item
        refs = [(name, i) for i in range(len(types))]
        if usable:
            self.outputs += [r for r, t in zip(refs, types) if t[0] == self.dtype]
        return refs

    def _leaves(self):
        d = self.d
        for shape in d.subset(SHAPES, 2):
            self.add("Placeholder", (), {"dtype": self.dtype, "shape": shape},
                     [(self.dtype, shape)])
        for shape in d.subset(SHAPES, 1):
            self._constant(d.values(self.dtype, shape, -2, 2, "ties"), True)
        for _ in range(d.integer(1, 3)):
            shape = d.pick(SHAPES)
            (ref,) = self.add("Variable", (), {"dtype": self.dtype, "shape": shape},
                              [(self.dtype, shape)])
            self.variables[ref[0]] = shape

    def _constant(self, value, usable=False):
        return self.add("Const", (), {"value": value}, [(value.dtype, value.shape)],
                        usable=usable)[0]

    def shape(self, ref):
        return self.items[ref[0]].types[ref[1]][1]

    def any(self):
        """Mostly among the latest, or a variable."""
        if self.d.chance(0.25):
            return (self.d.pick(list(self.variables)), 0)
        latest = self.outputs[-5:] if self.d.chance(0.6) else self.outputs
        return self.d.pick(latest)

    def beside(self, a):
        """Something that broadcasts against a."""
        def fits(b):
            pairs = zip(self.shape(a)[::-1], self.shape(b)[::-1])
            return all(m == n or 1 in (m, n) for m, n in pairs)
        b = self.any()
        return b if fits(b) else self.d.pick([r for r in self.outputs if fits(r)] or [a])

    def op(self, name, refs, shape, attrs=None, **more):
        return self.add(name, refs, attrs, [(self.dtype, list(shape))], **more)[0]

    def bounded(self, ref):
        """Values stay moderate, so that rounding does."""
        return self.op("Tanh", [ref], self.shape(ref)) if self.kind == "float" else ref

    # -- Kinds of nodes -------------------------------------------------------

    def _unary(self):
        a = self.any()
        self.op(self.d.pick(UNARY[self.kind]), [a], self.shape(a))

    def _binary(self):
        a = self.any()
        b = self.beside(a)
        shape = np.broadcast_shapes(self.shape(a), self.shape(b))
        op = self.d.pick(BINARY)
        y = self.op(op, [a, b], shape)
        if op in ("Mul", "SquaredDifference") or self.d.chance(0.3):
            self.bounded(y)

    def _reduce(self):
        a = self.any()
        shape = self.shape(a)
        axes = self.d.subset(range(len(shape)), min(1, len(shape)))
        keep = self.d.chance(0.5)
        left = [1 if i in axes else s for i, s in enumerate(shape)
                if keep or i not in axes]
        ops = ["Sum", "Max", "Min"] + (["Mean"] if self.kind == "float" else [])
        self.bounded(self.op(self.d.pick(ops), [a], left if shape else [],
                             {"axes": axes, "keep_dims": keep}))

    def _move(self):
        d, a = self.d, self.any()
        shape = self.shape(a)
        count = int(np.prod(shape, dtype=np.int64))
        kind = d.integer(0, 6)
        if kind == 0:
            to = [d.pick([k for k in (1, 2, 3, 4) if count % k == 0]), -1]
            y = [to[0], count // to[0]]
            self.op("Reshape", [a, self._constant(dims(to))], y)
        elif kind == 1:
            order = [int(i) for i in d.rng.permutation(len(shape))]
            self.op("Transpose", [a], [shape[i] for i in order], {"permutation": order})
        elif kind == 2:
            self.op("ExpandDims", [a], [1, *shape], {"axis": 0})
        elif kind == 3 and shape:
            begin = [d.integer(0, s - 1) for s in shape]
            size = [d.integer(1, s - b) for s, b in zip(shape, begin)]
            self.op("Slice", [a], size, {"begin": begin, "size": size})
        elif kind == 4 and shape:
            self.op("Concat", [a, a], [2 * shape[0], *shape[1:]], {"axis": 0})
        elif kind == 5 and shape:
            picked = d.rng.integers(0, shape[0], d.integer(1, 4))
            indices = self._constant(Value("int64", picked))
            self.op("Gather", [a, indices], [len(picked), *shape[1:]], {"axis": 0})
        elif kind == 6 and shape and shape[-1]:
            self.add("Split", [a], {"num": shape[-1], "axis": -1},
                     [(self.dtype, [*shape[:-1], 1])] * shape[-1])

    def _product(self):
        a, b = self.any(), self.any()
        if self.kind == "int" or len(self.shape(a)) != 2 or len(self.shape(b)) != 2:
            return
        for ta, tb in ((False, False), (True, False), (False, True), (True, True)):
            m, k = self.shape(a)[::-1] if ta else self.shape(a)
            l, n = self.shape(b)[::-1] if tb else self.shape(b)
            if k == l:
                self.bounded(self.op("MatMul", [a, b], [m, n],
                                     {"transpose_a": ta, "transpose_b": tb}))
                return

    def _condition(self, a):
        """A comparison with a constant that no value is near."""
        limit = self._constant(Value.of(self.dtype, 0.123456789))
        return self.add("Greater", [a, limit], {}, [("bool", list(self.shape(a)))])[0]

    def _select(self):
        a = self.any()
        condition = self._condition(self.beside(a))
        shape = np.broadcast_shapes(self.shape(a), self.shape(condition))
        zero = self._constant(Value.of(self.dtype, 0))
        self.op("Select", [condition, a, zero], shape)

    def _fitted(self, shape):
        """A value of this shape."""
        fitting = [r for r in self.outputs[-12:] if self.shape(r) == shape]
        if fitting and self.d.chance(0.7):
            return self.bounded(self.d.pick(fitting))
        small = [r for r in self.outputs if len(self.shape(r)) <= len(shape) and all(
            s in (1, t) for s, t in zip(self.shape(r)[::-1], shape[::-1]))]
        if not small or self.d.chance(0.2):
            return self._constant(self.d.values(self.dtype, shape, -1, 1, "ties"))
        return self.op("BroadcastTo", [self.bounded(self.d.pick(small)),
                                       self._constant(dims(shape))], shape)

    def _write(self):
        d = self.d
        variable = d.pick(list(self.variables))
        shape = self.variables[variable]
        others = [v for v, s in self.variables.items() if s == shape and v != variable]
        ops = ["Assign", "AssignAdd", "AssignSub"]
        if self.kind == "float":
            ops += ["ApplySgd"] + (["ApplyMomentum"] if others and self.together else [])
        op = d.pick(ops)
        written = [variable] + ([d.pick(others)] if op == "ApplyMomentum" else [])
        value = (d.pick(others), 0) if others and d.chance(0.3) else self._fitted(shape)
        inputs = [(v, 0) for v in written]
        if op.startswith("Apply"):
            inputs.append(self._constant(Value.of("float32", 0.125)))
        inputs.append(value)
        if d.chance(0.15):
            inputs.append(self._constant(Value("bool", np.array(d.chance(0.7)))))
        controls = {self.last_write[v] for v in written if v in self.last_write}
        if d.chance(0.04):
            controls = set()  # most likely an error
        (ref,) = self.add(op, inputs, {"nesterov": True} if op == "ApplyMomentum" else {},
                          [(self.dtype, shape)], controls)
        for v in written:
            self.last_write[v] = ref[0]

    def _again(self):
        """A copy of a node, perhaps behind something else."""
        same = [i for i in self.items.values()
                if i.op not in MUTATES and i.op not in ("Placeholder", "Variable")]
        if same:
            item = self.d.pick(same[-8:])
            self.add(item.op, item.inputs, item.attrs, item.types, item.controls)

    def _group(self):
        some = [n for n, i in self.items.items() if i.op != "Placeholder"]
        self.add("NoOp", controls=self.d.subset(some[-6:], 1))
