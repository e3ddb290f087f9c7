"""Comparing what was computed with what should have been."""
import numpy as np

from driver import FLOATS, Value

EPSILON = {"float64": 2.0 ** -52, "float32": 2.0 ** -23, "float16": 2.0 ** -10,
           "bfloat16": 2.0 ** -7}
# Below, results may be flushed to 0 (float64, float32) or have fewer digits.
TINY = {"float64": 2.3e-308, "float32": 1.2e-38, "float16": 6.2e-5,
        "bfloat16": 1.2e-38}
TINY_STEP = {"float16": 6.0e-8}


def difference(want, got, dtype, size, tolerance):
    """None where `got`, a Value, is `want`, a NumPy array of wider type, or a
    line about the worst element. Errors may be `tolerance` times `size`; with no
    size there may be none."""
    if got.dtype != dtype:
        return f"dtype {got.dtype}, wanted {dtype}"
    if list(want.shape) != got.shape:
        return f"shape {got.shape}, wanted {list(want.shape)}"
    if dtype not in FLOATS:
        return _worst(want, got.array, want.astype(got.array.dtype) != got.array)
    have = got.array.astype(np.float64)
    rounded = Value.of(dtype, want).array.astype(np.float64)
    with np.errstate(all="ignore"):
        equal = (rounded == have) | (np.isnan(rounded) & np.isnan(have))
        if size is None:
            return _worst(want, have, ~equal)
        size = np.nan_to_num(np.broadcast_to(size, want.shape), posinf=1e308)
        allowed = tolerance * np.maximum(size, np.abs(np.nan_to_num(want)))
        allowed = allowed + 2 * TINY_STEP.get(dtype, TINY[dtype])
        error = np.abs(have - want)
        # At the end of the range, one of them may round to infinity.
        limit = float(np.finfo("float32").max if dtype == "bfloat16"
                      else np.finfo(dtype).max)
        edge = np.isinf(have) & (np.abs(want) + allowed >= limit * (1 - 1e-3)) & (
            np.sign(have) == np.sign(want))
        bad = ~(equal | edge | (error <= allowed))
        return _worst(want, have, bad, np.where(np.isnan(error), np.inf, error) /
                      np.maximum(allowed, 1e-320))


def _worst(want, have, bad, badness=None):
    if not bad.any():
        return None
    flat = np.where(bad, 1.0 if badness is None else badness, -1.0).reshape(-1)
    index = np.unravel_index(int(flat.argmax()), bad.shape)
    place = "[" + ",".join(str(int(i)) for i in index) + "]"
    more = "" if badness is None else f", {flat.max():.3g} times what is allowed"
    return (f"{place}: got {have[index].item()!r}, wanted {want[index].item()!r}{more}; "
            f"{int(bad.sum())} of {bad.size} elements differ")


def summary(value, most=24):
    """A tensor in one line."""
    flat = value.array.reshape(-1)
    items = ", ".join(str(x) for x in flat[:most].tolist())
    return f"{value.dtype}{value.shape} {{{items}{', ...' if flat.size > most else ''}}}"
