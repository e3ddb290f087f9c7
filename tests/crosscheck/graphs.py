"""Random graphs with variables and control edges, several steps of each.

What a step should do is worked out here from the rule of docs/architecture.md
alone: a read sees the variable as it was when the step began, unless it depends
on a write of this step; it then sees what the last write on which it depends
left. Two writes of one variable without an order are an error. There is no
schedule: a node's value follows from its ancestors.
"""
from dataclasses import dataclass, field

import numpy as np
import torch

import reference
import reference_elementwise  # noqa: F401: these fill the list of references
import reference_nn  # noqa: F401
import reference_shape  # noqa: F401
import reference_update  # noqa: F401
from compare import difference, summary
from draw import Draw, dims
from driver import Refused, Value
from text import GraphText

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}
SHAPES = [[], [3], [4, 3], [4, 1], [2, 4, 3]]
VARIANTS = [
    {"executor": "serial"},
    {"executor": "dataflow"},
    {"executor": "serial", "fuse": False, "simplify": False},
    {"executor": "dataflow", "fuse": False},
    {"devices": ["/cpu:0", "/cpu:1"]},
    {"devices": ["/cpu:0", "/cpu:1"], "fuse": False, "simplify": False},
]
MUTATES = {"Assign": 1, "AssignAdd": 1, "AssignSub": 1, "ApplySgd": 1,
           "ApplyMomentum": 2}


@dataclass
class Item:
    """A node. Inputs are pairs of a node's name and an output."""
    name: str
    op: str
    inputs: list = field(default_factory=list)
    attrs: dict = field(default_factory=dict)
    controls: list = field(default_factory=list)
    types: list = field(default_factory=list)  # (dtype, shape) of each output
    device: str = None

    def sources(self):
        return [name for name, _ in self.inputs] + self.controls


class Unordered(Exception):
    """Two writes of a variable have no order."""


class Interpreter:
    """One step over the nodes, from the variables' values."""

    def __init__(self, items, attrs_of, feeds, state):
        self.items, self.attrs_of, self.feeds, self.state = items, attrs_of, feeds, state
        self.values, self.above = {}, {}

    def needed(self, roots):
        """Fed outputs need nothing: only their nodes' other uses do."""
        seen, stack = set(), list(roots)
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack += self._sources(name)
        return [n for n in self.items if n in seen]

    def _sources(self, name):
        return [] if name in self.feeds else self.items[name].sources()

    def run(self, roots):
        order = self.needed(roots)
        for name in order:
            above = set()
            for source in self._sources(name):
                above |= self.above[source] | {source}
            self.above[name] = above
        writes = {}
        for name in order:
            for variable in self._written(name):
                writes.setdefault(variable, []).append(name)
        for variable, names in writes.items():
            for a, b in zip(names, names[1:]):
                if a not in self.above[b]:
                    raise Unordered(f"{a} and {b} of {variable}")
        self.writes = writes
        for name in order:
            self._evaluate(name)
        for variable, names in writes.items():
            self.state[variable] = self.values[names[-1]][1][variable]

    def _written(self, name):
        item = self.items[name]
        return [v for v, _ in item.inputs[:MUTATES.get(item.op, 0)]]

    def seen_by(self, name, variable):
        """The value of a variable that node `name` reads."""
        before = [w for w in self.writes.get(variable, []) if w in self.above[name]]
        return self.values[before[-1]][1][variable] if before else self.state[variable]

    def value(self, reader, operand):
        name, output = operand
        if name in self.feeds:
            return self.feeds[name]
        if self.items[name].op == "Variable":
            return self.seen_by(reader, name) if reader else self.state[name]
        return self.values[name][0][output]

    def _evaluate(self, name):
        item = self.items[name]
        if name in self.feeds or item.op in ("Variable", "NoOp"):
            return
        if item.op == "Const":
            self.values[name] = ([_wide(item.attrs["value"])], {})
            return
        inputs = [self.value(name, operand) for operand in item.inputs]
        outputs = reference.evaluate(item.op, self.attrs_of(item), inputs)
        written = self._written(name)
        # After the node's output come the new values of what it updates.
        state = dict(zip(written, outputs[1:]))
        self.values[name] = (outputs[:1] if written else outputs, state)


def _wide(value):
    array = value.wide() if value.dtype.startswith("float") else value.array
    return torch.from_numpy(np.array(array))


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
        elif kind == 6 and shape:
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


class GraphCase:
    def __init__(self, ops, seed, index):
        self.ops, self.d = ops, Draw("graph", seed, index)
        self.d.style = "ties"
        self.builder = Builder(self.d, self.d.integer(3, 25))
        self.items = self.builder.items
        self.steps = [self._step() for _ in range(self.d.integer(1, 3))]
        self.first = {name: self._feed(name) for name in self.builder.variables}
        self.variants = VARIANTS
        self.report = {}

    def _feed(self, name):
        dtype, shape = self.items[name].types[0]
        return self.d.values(dtype, shape, -2, 2, "plain" if dtype[0] == "f" else "ties")

    def _step(self):
        d = self.d
        refs = [*self.builder.outputs, *((v, 0) for v in self.builder.variables)]
        writes = [n for n, i in self.items.items() if i.op in MUTATES]
        any_node = [n for n, i in self.items.items()
                    if self.builder.after_feeds or i.op != "Placeholder"]
        targets = d.subset(writes)[:3] + d.subset(any_node)[:1]
        feeds = {n: self._feed(n) for n, i in self.items.items() if i.op == "Placeholder"}
        # An output in the middle may be fed, too, if nothing else hangs on it.
        controls = {c for i in self.items.values() for c in i.controls}
        inner = [n for n, i in self.items.items() if len(i.types) == 1 and n not in controls
                 and n not in targets and i.types[0][0] == self.builder.dtype
                 and i.op not in MUTATES and i.op not in ("Placeholder", "Variable", "Const")]
        if inner and d.chance(0.2):
            name = d.pick(inner)
            feeds[name] = self._feed(name)
        return feeds, d.subset(refs, 1)[:5], targets

    def attrs_of(self, item):
        attrs = {k: a["default"] for k, a in self.ops[item.op]["attrs"].items()}
        return {**attrs, **item.attrs}

    def text(self, two_devices):
        text = GraphText(self.ops)
        for item in self.items.values():
            text.add(item.name, item.op, [_name(r) for r in item.inputs], item.attrs,
                     item.controls, item.device if two_devices else None)
        return text.text()

    def wanted(self):
        """The fetches of each step and the variables at the end."""
        state = {name: _wide(value) for name, value in self.first.items()}
        fetched = []
        for feeds, fetches, targets in self.steps:
            step = Interpreter(self.items, self.attrs_of,
                               {n: _wide(v) for n, v in feeds.items()}, state)
            # A step that fails leaves nothing to compare.
            start = dict(state)
            step.run([n for n, _ in fetches] + targets)
            step.state, end = start, step.state
            fetched.append([step.value(None, ref) for ref in fetches])
            state = end
        return fetched, state

    def check(self, driver):
        try:
            wanted = self.wanted()
        except Unordered as error:
            wanted = str(error)
        faults = []
        for options in self.variants:
            fault = self._variant(driver, options, wanted)
            if fault:
                faults.append(f"{options}: {fault}")
        return faults

    def _variant(self, driver, options, wanted):
        runs = [(feeds, [_name(r) for r in fetches], targets)
                for feeds, fetches, targets in self.steps]
        try:
            got, after = driver.run(self.text("devices" in options), runs, self.first,
                                    options=options)
        except Refused as error:
            return None if isinstance(wanted, str) else f"refused: {error}"
        if isinstance(wanted, str):
            return f"not refused: {wanted}"
        for number, (step, wants, values) in enumerate(zip(self.steps, wanted[0], got)):
            for ref, want, value in zip(step[1], wants, values):
                fault = self._difference(ref, want, value)
                if fault:
                    return f"step {number}, {_name(ref)} {fault}"
        for name, value in after.items():
            fault = self._difference((name, 0), wanted[1][name], value)
            if fault:
                return f"variable {name} {fault}"
        return None

    def _difference(self, ref, want, value):
        dtype = self.items[ref[0]].types[ref[1]][0]
        return difference(want.detach().numpy(), value, dtype, 1.0,
                          TOLERANCE.get(dtype, 0))

    def reproduction(self):
        lines = ["graph:", *("    " + x for x in self.text(True).splitlines())]
        lines += [f"variable {n}: {summary(v)}" for n, v in self.first.items()]
        for feeds, fetches, targets in self.steps:
            lines += [f"step: fetches {[_name(r) for r in fetches]}, targets {targets}"]
            lines += [f"    feed {n}: {summary(v)}" for n, v in feeds.items()]
        return lines


def _name(ref):
    return ref[0] if ref[1] == 0 else f"{ref[0]}:{ref[1]}"


def missing(ops):
    return []


def cases(ops, seed, long):
    for index in range(1500 if long else 60):
        yield str(index), lambda i=index: GraphCase(ops, seed, i)


def notes():
    return f"({len(VARIANTS)} ways of running each)"
