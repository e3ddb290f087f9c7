"""Makes a failing random graph smaller as long as it fails."""
import copy


def smaller(case):
    """Copies of the case, each without something."""
    for i in range(len(case.steps)):
        if len(case.steps) > 1:
            yield _changed(case, lambda c: c.steps.pop(i))
    for i in range(len(case.variants)):
        if len(case.variants) > 1:
            yield _changed(case, lambda c: c.variants.pop(i))
    for i, (_, fetches, targets) in enumerate(case.steps):
        for part, items in ((1, fetches), (2, targets)):
            for k in range(len(items)):
                yield _changed(case, lambda c: c.steps[i][part].pop(k))
    for name in list(case.items)[::-1]:
        yield _changed(case, lambda c: _drop(c, name))
    for name, item in case.items.items():
        for k in range(len(item.controls)):
            yield _changed(case, lambda c: c.items[name].controls.pop(k))
        for k, ref in enumerate(item.inputs):
            for before in case.items[ref[0]].inputs:
                if case.items[before[0]].types[before[1]] == case.items[ref[0]].types[ref[1]]:
                    yield _changed(case, lambda c: c.items[name].inputs.__setitem__(k, before))


def _changed(case, change):
    other = copy.copy(case)
    other.items = copy.deepcopy(case.items)
    other.steps = [(dict(f), list(n), list(t)) for f, n, t in case.steps]
    other.variants = list(case.variants)
    other.first = dict(case.first)
    change(other)
    return other


def _drop(case, name):
    """Without a node and what uses it."""
    gone = {name}
    for other, item in case.items.items():
        item.controls = [c for c in item.controls if c not in gone]
        if any(source in gone for source, _ in item.inputs):
            gone.add(other)
    for dead in gone:
        del case.items[dead]
        case.first.pop(dead, None)
    case.steps = [({n: v for n, v in feeds.items() if n not in gone},
                   [r for r in fetches if r[0] not in gone],
                   [t for t in targets if t not in gone])
                  for feeds, fetches, targets in case.steps]


def shrink(case, fails):
    """The smallest found for which `fails`."""
    progress = True
    while progress:
        progress = False
        for other in smaller(case):
            if fails(other):
                case, progress = other, True
                break
    return case
