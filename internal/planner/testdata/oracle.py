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


class Window:
    """The last values, less the zeros before the first that is none."""

    def __init__(self, size):
        self.size, self.values = size, []

    def add(self, value):
        if value or any(self.values):
            self.values = (self.values + [Fraction(value)])[-self.size:]
        elif self.values:  # all are zero by now, but work was seen
            self.values = (self.values + [Fraction(0)])[-self.size:]

    def mean(self):
        return sum(self.values) / len(self.values) if self.values else Fraction(0)


def recorded(role, seed, count):
    """Passes of an engine as rows: wall time, prefill requests and tokens, decode requests and KV tokens."""
    rnd, out = random.Random(seed), []
    for i in range(count):
        if i < 4 or rnd.random() < 0.1:
            out.append([0.0, 0, 0, 0, 0])  # heartbeats
            continue
        requests, tokens, batch, kv = 0, 0, 0, 0
        if role != "decode" and rnd.random() < 0.8:
            requests = rnd.randrange(1, 5)
            tokens = rnd.randrange(100, 8192)
        if role != "prefill":
            batch = rnd.randrange(1, 200)
            kv = batch * rnd.randrange(300, 3000)
        wall = 0.006 + 4e-5 * tokens + 8e-5 * batch + 1e-7 * kv
        out.append([round(wall * rnd.uniform(0.97, 1.03), 9), requests, tokens, batch, kv])
    return out


def answers(role, passes, limit=64, bucket_size=16):
    features = {"prefill": lambda p: [p[2]], "decode": lambda p: [p[3], p[4]], "agg": lambda p: [p[2], p[4]]}[role]
    isl, context, batch, tokens = (Window(limit) for _ in range(4))
    for p in passes:
        if p[1]:
            isl.add(Fraction(p[2], p[1]))
        if p[3]:
            context.add(Fraction(p[4], p[3]))
        batch.add(p[3])
        tokens.add(p[2])
    worked = [(features(p), p[0]) for p in passes if p[0]]
    dims = len(features(passes[0]))
    intercept, *coef = (Fraction(v) for v in line(retain(worked, dims, bucket_size, limit), dims))
    assert all(c > 0 for c in coef), "this stream would be refused"

    def takes(*x):
        return max(Fraction(1, 10**6), intercept + sum(c * Fraction(v) for c, v in zip(coef, x)))

    def ttft(queued, per_pass, hit, kv):
        left, total = (queued + isl.mean()) * (1 - hit), Fraction(0)
        while left > 0:
            chunk = min(left, Fraction(per_pass))
            total += takes(chunk, kv)
            left -= chunk
        return total

    out = {}
    if role != "decode":
        out["ttft"] = [[q, m, float(h), kv, float(ttft(q, m, h, kv))]
                       for q in (0, 3000, 50000) for m in (2048, 8192) for h in (Fraction(0), Fraction(1, 2)) for kv in (0, 70000)]
    if role != "prefill":
        def itl(scheduled, queued):
            kv = scheduled + queued + context.mean()
            return takes(batch.mean() + 1, kv) if role == "decode" else takes(tokens.mean(), kv)
        out["itl"] = [[s, q, float(itl(s, q))] for s in (0, 100000, 350000) for q in (0, 40000)]
    if role == "decode":
        def best(ctx, osl, slo, max_kv):
            b = 1
            while b + 1 <= max_kv // ctx and takes(b + 1, (b + 1) * ctx) <= slo:
                b += 1
            return b, b / (osl * takes(b, b * ctx))
        out["capacity"] = [[c, o, float(s), k, *(float(v) for v in best(c + o // 2, o, s, k))]
                           for c in (500, 4000) for o in (100, 1000) for s in (Fraction(3, 100), Fraction(8, 100)) for k in (100000, 900000)]
    return out


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
streams = []
for seed, role in ((11, "prefill"), (12, "decode"), (13, "agg")):
    passes = recorded(role, seed, 500)
    streams.append({"role": role, "passes": passes, **answers(role, passes)})
print('{"samples":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + '\n],"streams":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in streams) + "\n]}")
