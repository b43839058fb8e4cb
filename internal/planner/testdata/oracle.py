"""Works a stream of passes through the published rules in exact arithmetic, and prints what must come out.

    python3 oracle.py > oracle.json

A second implementation in another language: buckets as ordered dictionaries, the least squares as fractions.
"""
import json
import math
import random
from collections import OrderedDict
from fractions import Fraction


def stream(seed, count, dims):
    rnd = random.Random(seed)
    out = []
    for i in range(count):
        top = 200 if i < count // 3 else 2000  # the bounds move late
        x = [rnd.randrange(1, top) for _ in range(dims)]
        if rnd.random() < 0.6:  # most of the traffic sits at one point
            x = [top // 2 + rnd.randrange(5) for _ in range(dims)]
        y = 0.004 + sum(v * c for v, c in zip(x, (3e-5, 2e-6))) + rnd.random() * 1e-3
        out.append((x, round(y, 9)))
    return out


def retain(observations, dims, bucket_size, limit):
    per_axis = bucket_size if dims == 1 else math.isqrt(bucket_size)
    low, high, cells = [None] * dims, [None] * dims, OrderedDict()

    def cell(x):
        where = []
        for i, v in enumerate(x):
            if high[i] <= low[i]:
                where.append(0)
            else:
                where.append(max(0, min(int((float(v) - low[i]) / (high[i] - low[i]) * per_axis), per_axis - 1)))
        return tuple(where)

    total = 0
    for number, (x, y) in enumerate(observations):
        moved = False
        for i, v in enumerate(x):
            if low[i] is None or v < low[i]:
                low[i], moved = float(v), True
            if high[i] is None or v > high[i]:
                high[i], moved = float(v), True
        if moved and total:
            known = [o for c in cells.values() for o in c]
            cells.clear()
            for o in known:
                cells.setdefault(cell(o[1]), []).append(o)
        cells.setdefault(cell(x), []).append((number, x, y))
        total += 1
        if total > limit:
            fullest = max(cells, key=lambda k: len(cells[k]))
            cells[fullest].pop(0)
            total -= 1
            if not cells[fullest]:
                del cells[fullest]
    return [o for c in cells.values() for o in c]


def line(kept, dims):
    rows = [[Fraction(1)] + [Fraction(v) for v in x] for _, x, _ in kept]
    ys = [Fraction(y) for _, _, y in kept]
    n = dims + 1
    a = [[sum(r[i] * r[j] for r in rows) for j in range(n)] + [sum(r[i] * y for r, y in zip(rows, ys))] for i in range(n)]
    for i in range(n):
        a[i] = [v / a[i][i] for v in a[i]]
        for k in range(n):
            if k != i:
                a[k] = [v - a[k][i] * w for v, w in zip(a[k], a[i])]
    return [float(a[i][n]) for i in range(n)]


cases = []
for seed, count, dims, bucket_size, limit in ((1, 40, 1, 16, 64), (2, 400, 1, 16, 64), (3, 400, 2, 16, 64), (4, 700, 2, 9, 20), (5, 300, 1, 4, 7)):
    observations = stream(seed, count, dims)
    kept = retain(observations, dims, bucket_size, limit)
    intercept, *coef = line(kept, dims)
    cases.append({
        "dims": dims, "bucket_size": bucket_size, "max_samples": limit,
        "passes": [[*x, y] for x, y in observations],
        "kept": [o[0] + 1 for o in kept], "intercept": intercept, "coef": coef,
    })
print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")
