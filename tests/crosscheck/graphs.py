"""Random graphs with variables and control edges, several steps of each, in all
the ways in which a session can run them."""
import torch

from compare import difference, summary
from draw import Draw
from driver import Refused
from graph_builder import Builder
from graph_rule import Interpreter, MUTATES, Unordered, wide
from text import GraphText

TOLERANCE = {"float64": 1e-9, "float32": 2e-4}
VARIANTS = [
    {"executor": "serial"},
    {"executor": "dataflow"},
    {"executor": "serial", "fuse": False, "simplify": False},
    {"executor": "dataflow", "fuse": False},
    {"devices": ["/cpu:0", "/cpu:1"]},
    {"devices": ["/cpu:0", "/cpu:1"], "fuse": False, "simplify": False},
]


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
        state = {name: wide(value) for name, value in self.first.items()}
        fetched = []
        for feeds, fetches, targets in self.steps:
            step = Interpreter(self.items, self.attrs_of,
                               {n: wide(v) for n, v in feeds.items()}, state)
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
        return faults + self._slopes(driver)

    def _slopes(self, driver):
        """The gradient of one output with respect to all that is read, where
        nothing is written on the way."""
        if not self.steps[0][1]:
            return []
        (name, output), state = self.steps[0][1][0], self.first
        feeds = {n: self.steps[0][0][n] for n, i in self.items.items()
                 if i.op == "Placeholder"}
        given = {n: wide(v) for n, v in {**feeds, **state}.items()}
        if self.items[name].types[output][0][0] != "f" or name in given:
            return []
        for tensor in given.values():
            tensor.requires_grad_(True)
        step = Interpreter(self.items, self.attrs_of, {n: given[n] for n in feeds},
                           {n: given[n] for n in state})
        needed = step.needed([name])
        xs = [n for n in needed if n in given]
        if not xs or any(self.items[n].op in MUTATES for n in needed):
            return []
        step.run([name])
        y = step.value(None, (name, output))
        wants = torch.autograd.grad(y.sum(), [given[n] for n in xs], allow_unused=True) \
            if y.requires_grad else [None] * len(xs)
        request = {"ys": [_name((name, output))], "xs": xs}
        return [fault for options in VARIANTS[1:4] for fault in self._slope_faults(
            driver, options, feeds, request, wants)]

    def _slope_faults(self, driver, options, feeds, request, wants):
        xs, where = request["xs"], f"gradient of {request['ys'][0]}, {options}:"
        try:
            (got,), _ = driver.run(self.text(False), [(
                feeds, [f"@{k}" for k in range(len(xs))], [])], self.first, [request],
                options)
        except Refused as error:
            return [f"{where} refused: {error}"]
        faults = []
        for x, want, value in zip(xs, wants, got):
            want = torch.zeros_like(wide(self.first.get(x) or feeds[x])) if want is None \
                else want
            if value is None:
                fault = "none, PyTorch has one" if want.abs().sum() > 1e-12 else None
            else:
                size = max(1.0, want.abs().max().item())
                fault = difference(want.numpy(), value, value.dtype, size,
                                   10 * TOLERANCE[value.dtype])
            if fault:
                faults.append(f"{where} {x}: {fault}")
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
    for index in range(4000 if long else 300):
        yield str(index), lambda i=index: GraphCase(ops, seed, i)


def notes():
    return f"({len(VARIANTS)} ways of running each)"
