"""References of ops that reduce, move, cut, fill and index."""
import numpy as np
import torch

from reference import EACH, EXACT, MAGNITUDES, axes_of, move, reference
from reference_elementwise import TORCH


def _wrapped(result, like):
    """Integers of the operand's type, which PyTorch sums in int64."""
    return result.to(like.dtype)


def _rows(c, x):
    """x with the reduced axes as one last axis, and the shape of the result."""
    axes = axes_of(c, x)
    kept = [d for d in range(x.dim()) if d not in axes]
    shape = [1 if d in axes else x.shape[d] for d in range(x.dim())
             if c.keep_dims or d not in axes]
    count = int(np.prod([x.shape[d] for d in axes], dtype=np.int64))
    rows = int(np.prod([x.shape[d] for d in kept], dtype=np.int64))
    return x.permute([*kept, *axes]).reshape(rows, count), shape


def _least(x, sign):
    if x.is_floating_point():
        return sign * float("inf")
    info = torch.iinfo(x.dtype)
    return info.max if sign > 0 else info.min


@reference("Sum", scale=MAGNITUDES)
def sum_(c, x):
    rows, shape = _rows(c, x)
    return _wrapped(rows.sum(1), x).reshape(shape)


@reference("Mean", scale=MAGNITUDES)
def mean(c, x):
    rows, shape = _rows(c, x)
    return rows.mean(1).reshape(shape)


@reference("Prod", scale=EACH)
def prod(c, x):
    rows, shape = _rows(c, x)
    return _wrapped(rows.prod(1), x).reshape(shape)


@reference("ProdGrad", scale=MAGNITUDES)
def prod_grad(c, dy, x):
    last = x.transpose(c.axis, -1)
    n = last.shape[-1]
    square = torch.where(torch.eye(n, dtype=torch.bool), torch.ones(()).to(x.dtype),
                         last.unsqueeze(-2))
    return dy * square.prod(-1).transpose(c.axis, -1)


@reference("Max", "Min", scale=EXACT)
def extreme(c, x):
    rows, shape = _rows(c, x)
    largest = c.op == "Max"
    if rows.shape[1] == 0:
        return torch.full(shape, _least(x, -1 if largest else 1), dtype=x.dtype)
    return (rows.amax(1) if largest else rows.amin(1)).reshape(shape)


@reference("LogSumExp")
def log_sum_exp(c, x):
    rows, shape = _rows(c, x)
    if rows.shape[1] == 0:
        return torch.full(shape, -float("inf"), dtype=x.dtype)
    return torch.logsumexp(rows, 1).reshape(shape)


@reference("Any", "All")
def any_all(c, x):
    rows, shape = _rows(c, x)
    return (rows.any(1) if c.op == "Any" else rows.all(1)).reshape(shape)


@reference("ArgMax", "ArgMin")
def arg(c, x):
    find = np.argmax if c.op == "ArgMax" else np.argmin
    y = find(x.detach().numpy(), axis=c.axis)
    return torch.from_numpy(np.array(np.expand_dims(y, c.axis) if c.keep_dims else y))


@reference("CumSum", scale=MAGNITUDES)
def cum_sum(c, x):
    if c.reverse:
        x = x.flip(c.axis)
    y = _wrapped(x.cumsum(c.axis), x)
    if c.exclusive:
        first = torch.zeros_like(y.narrow(c.axis, 0, min(1, y.shape[c.axis])))
        y = torch.cat([first, y.narrow(c.axis, 0, max(0, y.shape[c.axis] - 1))], c.axis)
    return y.flip(c.axis) if c.reverse else y


@reference("SumTo", scale=MAGNITUDES)
def sum_to(c, x, shape):
    to = [1] * (x.dim() - len(shape)) + shape.tolist()
    axes = [d for d in range(x.dim()) if to[d] == 1 and x.shape[d] != 1]
    y = _wrapped(x.sum(axes, keepdim=True), x) if axes else x.clone()
    return y.reshape(shape.tolist())


@reference("Reshape", scale=EXACT)
def reshape(c, x, shape):
    return x.clone().reshape(shape.tolist())


@reference("ExpandDims", scale=EXACT)
def expand_dims(c, x):
    return x.clone().unsqueeze(c.axis)


@reference("Squeeze", scale=EXACT)
def squeeze(c, x):
    drop = {a % x.dim() for a in c.axes} or {d for d in range(x.dim()) if x.shape[d] == 1}
    return x.clone().reshape([s for d, s in enumerate(x.shape) if d not in drop])


@reference("Transpose", scale=EXACT)
def transpose(c, x):
    return x.permute(c.permutation or list(range(x.dim()))[::-1]).clone()


@reference("BroadcastTo", scale=EXACT)
def broadcast_to(c, x, shape):
    return torch.broadcast_to(x, shape.tolist()).clone()


@reference("Fill", scale=EXACT)
def fill(c, shape, value):
    return value.expand(shape.tolist()).clone()


@reference("ZerosLike", scale=EXACT)
def zeros_like(c, x):
    return torch.zeros_like(x)


@reference("OnesLike", scale=EXACT)
def ones_like(c, x):
    return torch.ones_like(x)


@reference("Range")
def range_(c, start, limit, delta):
    y = np.arange(start.item(), limit.item(), delta.item())
    return torch.from_numpy(y).to(start.dtype)


@reference("ShapeOf")
def shape_of(c, x):
    return torch.tensor(list(x.shape), dtype=torch.int64)


@reference("Rank")
def rank(c, x):
    return torch.tensor(x.dim())


@reference("Size")
def size(c, x):
    return torch.tensor(x.numel())


@reference("Concat", scale=EXACT)
def concat(c, *parts):
    return torch.cat(parts, c.axis)


@reference("ConcatGrad", scale=EXACT)
def concat_gradient(c, dy, *shapes):
    sizes = [int(s[c.axis]) for s in shapes]
    return [part.clone() for part in torch.split(dy, sizes, c.axis)]


@reference("Split", scale=EXACT)
def split(c, x):
    size = x.shape[c.axis] // c.num
    return [x.narrow(c.axis, i * size, size).clone() for i in range(c.num)]


@reference("Stack", scale=EXACT)
def stack(c, *parts):
    return torch.stack(parts, c.axis)


@reference("Unstack", scale=EXACT)
def unstack(c, x):
    return [part.clone() for part in torch.unbind(x, c.axis)]


@reference("Tile", scale=EXACT)
def tile(c, x):
    return x.repeat(c.multiples) if x.dim() else x.clone()


@reference("TileGrad", scale=MAGNITUDES)
def tile_gradient(c, dy):
    split, axes = [], []
    for d, multiple in enumerate(c.multiples):
        axes.append(len(split))
        split += [multiple, dy.shape[d] // multiple]
    return _wrapped(dy.reshape(split).sum(axes), dy) if axes else dy.clone()


@reference("Reverse", scale=EXACT)
def reverse(c, x):
    return x.flip(sorted({a % x.dim() for a in c.axes})) if c.axes else x.clone()


def slices(c):
    return tuple(slice(None if c.begin_mask >> i & 1 else b,
                       None if c.end_mask >> i & 1 else e, s)
                 for i, (b, e, s) in enumerate(zip(c.begin, c.end, c.strides)))


@reference("Slice", scale=EXACT)
def slice_(c, x):
    parts = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(c.begin, c.size))
    return move(x, lambda p: p[parts])


@reference("StridedSlice", scale=EXACT)
def strided_slice(c, x):
    return move(x, lambda p: p[slices(c)])


@reference("StridedSliceGrad", scale=EXACT)
def strided_slice_gradient(c, dy, shape):
    full = shape.tolist()
    positions = np.arange(int(np.prod(full, dtype=np.int64))).reshape(full)[slices(c)]
    flat = torch.zeros(int(np.prod(full, dtype=np.int64)), dtype=dy.dtype)
    index = torch.from_numpy(positions.reshape(-1).copy())
    return flat.index_put((index,), dy.reshape(-1)).reshape(full)


@reference("Pad", scale=EXACT)
def pad(c, x):
    pairs = list(zip(c.paddings[::2], c.paddings[1::2]))
    full = [s + b + a for s, (b, a) in zip(x.shape, pairs)]
    value = c.value if x.is_floating_point() else int(c.value)
    y = torch.full(full, value).to(x.dtype)
    inside = tuple(slice(b, b + s) for s, (b, _) in zip(x.shape, pairs))
    y[inside] = x
    return y


def _gathered(c, shape, indices):
    """The positions in a tensor of `shape` of what Gather takes."""
    positions = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    axis = c.axis % len(shape)
    if c.batch_dims == 0:
        return np.asarray(np.take(positions, indices, axis))
    lead = shape[:c.batch_dims]
    count = int(np.prod(lead, dtype=np.int64))
    flat = positions.reshape(count, *shape[c.batch_dims:])
    rows = indices.reshape(count, *indices.shape[c.batch_dims:])
    parts = [np.take(p, i, axis - c.batch_dims) for p, i in zip(flat, rows)]
    rest = (*shape[c.batch_dims:axis], *indices.shape[c.batch_dims:], *shape[axis + 1:])
    return np.array(parts, dtype=np.int64).reshape(*lead, *rest)


@reference("Gather", scale=EXACT)
def gather(c, params, indices):
    taken = _gathered(c, tuple(params.shape), indices.numpy())
    return params.reshape(-1)[torch.from_numpy(taken.astype(np.int64))]


@reference("ScatterAdd", scale=MAGNITUDES)
def scatter_add(c, x, indices, updates):
    taken = _gathered(c, tuple(x.shape), indices.numpy()).reshape(-1)
    return x.reshape(-1).index_add(0, torch.from_numpy(taken.astype(np.int64)),
                                   updates.reshape(-1)).reshape(x.shape)


@reference("OneHot")
def one_hot(c, indices):
    hit = indices.unsqueeze(-1) == torch.arange(c.depth)
    values = torch.where(hit, torch.tensor(c.on, dtype=torch.float64),
                         torch.tensor(c.off, dtype=torch.float64))
    return values.to(TORCH[c.dtype])


@reference("TopK", scale=EXACT)
def top_k(c, x):
    rows = x.detach().reshape(-1, x.shape[-1]).tolist()

    def key(row):  # NaN first, then the largest, then the first
        return lambda i: (row[i] == row[i], -row[i] if row[i] == row[i] else 0, i)

    order = [sorted(range(len(row)), key=key(row))[:c.k] for row in rows]
    indices = torch.tensor(order, dtype=torch.int64).reshape(*x.shape[:-1], c.k)
    return [torch.gather(x, -1, indices), indices]


@reference("InTopK")
def in_top_k(c, predictions, targets):
    target = torch.gather(predictions, 1, targets.long().unsqueeze(1))
    higher = (predictions > target).sum(1)
    return (higher < c.k) & ~torch.isnan(target[:, 0])
