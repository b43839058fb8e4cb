"""Writes reference.json: what C zlib and numpy say about inputs that the Go test makes again.

Run with a Python that has numpy:  python3 make_reference.py > reference.json
"""
import json
import zlib

import numpy as np

MASK = (1 << 64) - 1


class Rand:
    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.x >> 33) % n

    def float(self):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.x >> 11) * 2.0**-53


def text(seed, kind, length, p):
    r = Rand(seed)
    out = bytearray()
    if kind == "letters":  # p letters
        while len(out) < length:
            out.append(97 + r.below(p))
    elif kind == "words":  # words of 2 to 9 letters out of p
        words = [bytes(97 + r.below(26) for _ in range(2 + r.below(8))) for _ in range(p)]
        while len(out) < length:
            out += words[r.below(p)] + b" "
    elif kind == "block":  # a block of p bytes again and again, one byte in 97 blocks changed
        block = bytes(r.below(256) for _ in range(p))
        while len(out) < length:
            b = bytearray(block)
            if r.below(97) < 40:
                b[r.below(p)] = r.below(256)
            out += b
    elif kind == "bytes":  # p of 100 bytes random, others zero
        while len(out) < length:
            out.append(r.below(256) if r.below(100) < p else 0)
    return bytes(out[:length])


def main():
    z = []
    seed = 1
    for length in (0, 1, 2, 3, 10, 257, 1000, 9999, 10000, 10003, 20000, 32768, 40000):
        for kind, ps in (
            ("letters", (1, 2, 5, 26)),
            ("words", (1, 3, 8, 40, 60, 80, 200, 5000)),
            ("block", (1, 7, 100, 250, 400, 900, 3000)),
            ("bytes", (0, 2, 5, 50, 100)),
        ):
            for p in ps:
                z.append({"seed": seed, "kind": kind, "len": length, "p": p,
                          "size": len(zlib.compress(text(seed, kind, length, p), 9))})
                seed += 1
    n = []
    for count in list(range(1, 40)) + [127, 128, 129, 135, 136, 137, 255, 256, 257, 1000, 4096, 8193, 20001]:
        r = Rand(count)
        v = np.array([(r.float() - 0.25) * 10 ** (r.below(9) - 4) for _ in range(count)])
        n.append({"n": count, "mean": np.mean(v).item().hex(), "median": np.median(v).item().hex(),
                  "max": np.max(v).item().hex(), "min": np.min(v).item().hex()})
    ok = []
    for g in (2, 3, 4, 8, 16, 32):
        r = Rand(g)
        for groups in (1, 5, 33):
            c = [r.below(g + 1) for _ in range(groups)]
            rates, k = [], 1
            while k <= g:
                def est(n_, c_):
                    return 1.0 if n_ - c_ < k else 1.0 - np.prod(1.0 - k / np.arange(n_ - c_ + 1, n_ + 1))
                rates.append(np.mean(np.array([est(g, x) for x in c])).item().hex())
                k *= 2
            ok.append({"size": g, "correct": c, "rates": rates})
    s = []
    for x in (0.0, -0.0, 1.0, 0.05, 0.15, 0.25, 0.35, 0.45, 2.675, -0.05, -0.25, 1e15, 123456789012345.67, 1e16, 1e22, 1.5e300, 5e-324, 1e-5, 0.1, 0.95, 0.949999, 99.95,
              float("inf"), float("-inf")):
        s.append({"x": x.hex(), "round": str(round(x, 1)), "str": str(x), "np": str(round(np.float64(x), 1))})
    print(json.dumps({"zlib": z, "numpy": n, "passk": ok, "float": s}, separators=(",", ":")))


main()
