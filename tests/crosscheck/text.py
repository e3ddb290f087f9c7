"""Graphs in Sluice's text form (graph/text/text.h)."""
import base64
import math


def number(value):
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def dims(shape):
    return "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def tensor(value):
    data = base64.b64encode(value.bytes()).decode()
    return f'{value.dtype}{dims(value.shape)} base64 "{data}"'


def attribute(kind, value):
    """An attribute's value as its op's record types it."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        return number(value)
    if kind == "string":
        return f'"{value}"'
    if kind in ("ints", "shape"):
        return dims(value)
    if kind == "tensor":
        return tensor(value)
    return str(value)


class GraphText:
    """Lines of a graph, built in order. `ops` is the table."""

    def __init__(self, ops):
        self.ops, self.lines = ops, []

    def add(self, name, op, inputs=(), attrs=None, controls=(), device=None):
        record = self.ops[op]["attrs"]
        operands = ", ".join([*inputs, *("^" + c for c in controls)])
        line = f"{name} = {op}({operands})"
        if attrs:
            parts = (f"{key} = {attribute(record[key]['type'], value)}"
                     for key, value in attrs.items() if value is not None)
            line += " {" + ", ".join(parts) + "}"
        if device:
            line += f" @ {device}"
        self.lines.append(line)
        return name

    def placeholder(self, name, dtype, shape, **more):
        return self.add(name, "Placeholder", (),
                        {"dtype": dtype, "shape": shape}, **more)

    def variable(self, name, dtype, shape, **more):
        return self.add(name, "Variable", (), {"dtype": dtype, "shape": shape},
                        **more)

    def constant(self, name, value, **more):
        return self.add(name, "Const", (), {"value": value}, **more)

    def text(self):
        return "\n".join(self.lines) + "\n"
