"""What Python itself reads from a dump, in the notation of WriteJSON; and a source of random dumps.

    oracle.py view FILE...           prints one JSON line per file (torch.load, else pickle.load)
    oracle.py random DIR N SEED      writes N random dumps, DIR/i.pt and DIR/i.json
    oracle.py both DIR N SEED FILE.. as random; then loads the files by torch.load alone and prints their views
"""
import collections, dataclasses, datetime, decimal, enum, fractions, io, json, pathlib, pickle, random, struct, sys, types, uuid
import numpy as np
import torch

# Classes that the reader of the dump does not have.
env = types.ModuleType("agent_env"); sys.modules["agent_env"] = env


def put(cls):
    cls.__module__ = "agent_env"
    cls.__qualname__ = cls.__name__
    setattr(env, cls.__name__, cls)
    return cls


@put
@dataclasses.dataclass
class Data:
    a: object = None
    b: object = None


@put
class Slots:
    __slots__ = ("x", "y")


@put
class ListSub(list):
    pass


@put
class DictSub(dict):
    pass


@put
class Reduced:
    def __init__(self, *args): self.args = args
    def __reduce__(self): return (Reduced, self.args)


@put
class Stated:
    def __getstate__(self): return [self.v, "state"]
    def __setstate__(self, s): self.v = s[0]


@put
class NewArgs:
    def __new__(cls, *a, **k):
        o = object.__new__(cls); o.a, o.k = a, k
        return o
    def __getnewargs_ex__(self): return self.a, self.k
    def __getstate__(self): return None


Point = put(collections.namedtuple("Point", "x y"))


def hexf(f):
    f = float(f)
    return "nan" if f != f else f.hex()


def num(x):
    if isinstance(x, bool): return x
    if isinstance(x, int): return x if -2**53 <= x <= 2**53 else {"$int": str(x)}
    if isinstance(x, float): return {"$f": hexf(x)}
    if isinstance(x, complex): return {"$c": [hexf(x.real), hexf(x.imag)]}
    raise TypeError(type(x))


def text(s):
    try: s.encode()
    except UnicodeEncodeError: return {"$surrogate_str": s.encode("utf-8", "surrogatepass").hex()}
    return s


def elem(x, dt, v):
    if dt.subdtype: return [elem(y, dt.subdtype[0], v) for y in np.asarray(x).ravel()]
    if dt.names: return [elem(x[n], dt[n], v) for n in dt.names]
    if dt.kind == "O": return v(x)
    if dt.kind == "U": return text(str(x))
    if dt.kind == "S": return {"$bytes": bytes(x).hex()}
    if dt.kind == "V": return {"$bytes": x.tobytes().hex()}
    if dt.kind in "Mm": return num(int(np.asarray(x).astype("i8")))
    if dt.kind == "b": return bool(x)
    if dt.kind in "iu": return num(int(x))
    if dt.kind == "c": return num(complex(x))
    return num(float(x))


def dts(dt):
    return [[n, dts(dt[n])] for n in dt.names] if dt.names else dt.str


def tensor(t):
    t0 = t.detach()
    if t0.layout == torch.sparse_coo:
        return {"$sparse": {"dtype": str(t.dtype), "shape": list(t.shape), "indices": tensor(t0._indices()), "values": tensor(t0._values())}}
    flat = t0.to(torch.float32) if t0.dtype in (torch.bfloat16,) else t0
    return {"$tensor": {"class": "Parameter" if isinstance(t, torch.nn.Parameter) else "Tensor", "dtype": str(t.dtype),
            "shape": list(t.shape), "stride": list(t.stride()), "requires_grad": t.requires_grad,
            "data": [num(x) for x in flat.reshape(-1).tolist()]}}


def view(o, open_=()):
    if o is None or isinstance(o, bool): return o
    t = type(o)
    if t in (int, float): return num(o)
    if t is str: return text(o)
    if t is bytes: return {"$bytes": o.hex()}
    if t is bytearray: return {"$bytearray": bytes(o).hex()}
    if id(o) in open_: return {"$cycle": len(open_) - open_.index(id(o))}
    v = lambda x, path=open_ + (id(o),): view(x, path)
    if t is list: return [v(x) for x in o]
    if t is tuple: return {"$tuple": [v(x) for x in o]}
    if t is set: return {"$set": [v(x) for x in o]}
    if t is frozenset: return {"$frozenset": [v(x) for x in o]}
    if t is complex: return num(o)
    if t is torch.Size: return {"$torch.Size": list(o)}
    if isinstance(o, torch.dtype): return {"$dtype": str(o)}
    if isinstance(o, torch.device): return {"$device": str(o)}
    if isinstance(o, torch.Tensor): return tensor(o)
    if isinstance(o, np.ndarray): return {"$ndarray": {"dtype": dts(o.dtype), "shape": list(o.shape), "data": [elem(x, o.dtype, v) for x in (o.ravel() if o.ndim else [o[()]])]}}
    if isinstance(o, np.generic): return {"$np": {"dtype": dts(o.dtype), "value": elem(o, o.dtype, v)}}
    if t is dict: return mapping(o, v)
    if t in (collections.OrderedDict, collections.defaultdict, collections.Counter): return {"$" + t.__name__: mapping(o, v)}
    name = t.__module__ + "." + t.__qualname__
    if t is Data: return {"$obj": {"class": name, "state": mapping(vars(o), v)}}
    if t is Slots: return {"$obj": {"class": name, "state": mapping({"x": o.x, "y": o.y}, v)}}
    if t is Reduced: return {"$obj": dict({"class": name, "state": {}}, **({"args": [v(x) for x in o.args]} if o.args else {}), call=True)}
    if t is Stated: return {"$obj": {"class": name, "state": [v(o.v), "state"]}}
    if t is Point: return {"$obj": {"class": name, "state": {}, "args": [v(x) for x in o]}}
    if t is ListSub: return {"$obj": dict({"class": name, "state": {}}, **({"items": [v(x) for x in o]} if o else {}))}
    if t is DictSub: return {"$obj": dict({"class": name, "state": {}}, **({"pairs": mapping(o, v)} if o else {}))}
    return {"$str": str(o), "$type": name}


def mapping(o, v):
    if all(type(k) is str and not k.startswith("$") for k in o): return {k: v(x) for k, x in o.items()}
    return {"$pairs": [[v(k), v(x)] for k, x in o.items()]}


class Gen:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.np = np.random.RandomState(seed)
        self.seen = []

    def string(self):
        r = self.r
        return r.choice([
            "", "plain", "tokens", "x" * r.choice([1, 255, 256, 300]), "h\u00e9llo \U0001f30d \u4f60\u597d", "a\\b\n'\"\\u0041", "nul\0\x7f",
            "$tag", "lone\ud800 \udfff", str(r.random())])

    def scalar(self):
        r = self.r
        return r.choice([
            lambda: None, lambda: True, lambda: False,
            lambda: r.choice([0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -2**31, -2**31 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -2**63, 2**64, -2**200, 10**300]),
            lambda: r.randint(-10, 300),
            lambda: r.choice([0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), r.random()]),
            self.string, self.string,
            lambda: bytes(r.randrange(256) for _ in range(r.choice([0, 1, 5, 300]))),
            lambda: bytearray(b"\x00\xfe" * r.randrange(4)),
            lambda: complex(r.random(), -1),
        ])()

    def numbers(self):
        r = self.r
        n = r.choice([0, 1, 2, 3, 5, 17, 999, 1000, 1001, 1002, 2001])
        return r.choice([
            lambda: [r.randrange(256) for _ in range(n)], lambda: [r.randrange(70000) for _ in range(n)],
            lambda: [-r.random() for _ in range(n)], lambda: [r.choice([None, 1.5, 3, True, 2**40, -7]) for _ in range(n)],
            lambda: [r.choice([1, 2, "x"]) for _ in range(n)], lambda: [r.choice([2**31, -2**63, 2**63]) for _ in range(n)],
        ])()

    def array(self):
        r, p = self.r, self.np
        dt = r.choice(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "?", ">i4", ">f8", "U3", "S4", "M8[ns]", "m8[25s]", "M8[D]", "V3"])
        shape = r.choice([(), (3,), (2, 3), (0, 2), (2, 1, 2)])
        n = int(np.prod(shape, dtype=int))
        if dt in ("U3", "S4"): a = np.array([r.choice(["", "a", "abc"]) for _ in range(n)]).astype(dt)
        elif dt.startswith("V"): a = np.frombuffer(bytes(r.randrange(256) for _ in range(3 * n)), dtype=dt) if n else np.zeros(0, dt)
        elif dt[0] in "Mm": a = p.randint(0, 10**9, n).astype("i8").view("i8").astype(dt)
        elif dt == "?": a = p.randint(0, 2, n).astype(dt)
        else: a = (p.rand(n) * 200 - (0 if dt[0] == "u" else 100)).astype(dt)
        a = a.reshape(shape)
        k = r.randrange(6)
        if k == 0 and a.ndim > 1: a = np.asfortranarray(a)
        if k == 1 and a.ndim: a = a[::-1]
        if k == 2: return np.array([1, "two", None, [3]] + [self.scalar()], dtype=object)
        if k == 3: return np.array([(1, 2.5, "ab", (1, 2)), (3, 4.5, "", (3, 4))], dtype=[("i", "<i4"), ("f", ">f8"), ("s", "U2"), ("sub", "<i2", (2,))])
        if k == 4 and a.ndim and a.size and dt not in ("V3",): return a.ravel()[0]
        return a

    def tensor(self):
        r = self.r
        dt = r.choice([torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool])
        t = (torch.rand(r.choice([(), (3,), (2, 3), (0, 2), (2, 2, 2)])) * 100).to(dt)
        k = r.randrange(6)
        if k == 0 and t.dim() == 2: t = t.t()
        if k == 1 and t.dim(): t = t[1:]
        if k == 2 and dt in (torch.float32, torch.float64): return torch.nn.Parameter(t)
        if k == 3: return torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.5, 2.5], (2, 2))
        if k == 4: return r.choice([torch.Size([2, 3]), torch.float16, torch.device("cuda", 1), torch.device("cpu")])
        return t

    def std(self):
        r = self.r
        return r.choice([
            lambda: datetime.datetime(2026, 8, 21, 1, 2, 3, r.choice([0, 456789])),
            lambda: datetime.datetime(2026, 8, 21, tzinfo=datetime.timezone(datetime.timedelta(hours=r.choice([0, 8, -5]), minutes=30))),
            lambda: datetime.date(1999, 12, 31), lambda: datetime.time(23, 59, 1), lambda: datetime.timedelta(r.randint(-3, 3), 5, 7),
            lambda: decimal.Decimal("1.10"), lambda: fractions.Fraction(1, 3), lambda: uuid.UUID(int=r.getrandbits(128)), lambda: pathlib.PurePosixPath("/a/b"),
            lambda: pathlib.PurePosixPath("a"), lambda: range(1, 9, 2), lambda: range(3), lambda: slice(1, None, 2), lambda: collections.deque([1, "x", 2.5]),
            lambda: collections.deque([1], maxlen=5),
        ])()

    def obj(self, depth):
        r, v = self.r, lambda: self.value(depth - 1)
        k = r.randrange(8)
        if k == 0: return Data(v(), v())
        if k == 1:
            o = Slots(); o.x, o.y = v(), v(); return o
        if k == 2: return ListSub(v() for _ in range(r.randrange(4)))
        if k == 3: return DictSub((self.string(), v()) for _ in range(r.randrange(4)))
        if k == 4: return Reduced(*[v() for _ in range(r.choice([0, 2, 3]))])
        if k == 5:
            o = Stated(); o.v = v(); return o
        return Point(v(), v())

    def value(self, depth):
        r = self.r
        if self.seen and r.random() < 0.12: return r.choice(self.seen)
        if depth <= 0 or r.random() < 0.25: return self.scalar()
        v = lambda: self.value(depth - 1)
        k = r.randrange(16)
        if k < 3: o = {self.string(): v() for _ in range(r.randrange(6))}
        elif k < 5: o = [v() for _ in range(r.randrange(6))]
        elif k < 6: o = tuple(v() for _ in range(r.randrange(6)))
        elif k < 8: o = self.numbers()
        elif k < 9: o = {r.choice([1, "1", None, (1, 2), b"k", 2.5, True]): v() for _ in range(3)}
        elif k < 10: o = r.choice([lambda: {7}, lambda: set(), lambda: frozenset(["z"]), lambda: frozenset()])()
        elif k < 11:
            o = r.choice([collections.OrderedDict, lambda x: collections.defaultdict(list, x), lambda x: collections.Counter({k: 1 for k in x})])({self.string(): v() for _ in range(3)})
        elif k < 12: o = self.array()
        elif k < 13: o = self.tensor()
        elif k < 14: o = self.std()
        elif k < 15: o = self.obj(depth)
        else:
            o = []
            o.extend([1, {"me": o}, v()])
        self.seen.append(o)
        return o

    def sample(self, i):
        r = self.r
        s = {"group_index": i // 2, "index": i, "tokens": self.numbers(), "response": self.string(), "rollout_log_probs": self.numbers(),
             "metadata": self.value(3), "extra": self.value(4), "trace": {"events": [{"type": "span_start", "name": r.choice(["a", "b"]), "ts": r.random(), "attrs": self.value(2)} for _ in range(r.randrange(5))]}}
        for k in list(s):
            if r.random() < 0.15: del s[k]
        k = r.randrange(12)
        if k == 0: return Data(s, self.value(2))
        if k == 1: return self.value(3)
        return s


def strings(out):
    """Arrays and what str() shows of them, as str.bin and str.json."""
    g = Gen(99)
    torch.manual_seed(5)
    arrays = {}
    for i in range(150):
        arrays["np%d" % i] = g.array()
        arrays["t%d" % i] = g.tensor()
    r = g.np
    for k, a in {
        "long": np.arange(5000), "wide": r.randint(-9, 10**6, 60), "grid": r.rand(40, 40), "cube": r.rand(2, 3, 4) * 1e3, "far": r.rand(5) * 10.0 ** r.randint(-9, 9, 5),
        "big": np.array([1e9, 2.5]), "small": np.array([1e-5, 0.0]), "nan": np.array([np.nan, 1.5, -np.inf, np.inf]), "zeros": np.zeros(3), "whole": np.array([1.0, 20.0]),
        "f4": r.rand(4).astype("f4"), "f2": r.rand(4).astype("f2"), "third": np.array([1 / 3, 100 / 3]), "bools": np.array([[True], [False]]), "zerod": np.array(1.5), "words": np.array(["a", "bcd"]),
        "tlong": torch.arange(3000), "tgrid": torch.rand(50, 50), "tcube": torch.rand(2, 2, 3) * 100, "tfar": torch.tensor([1e-6, 1.0, 2e5]), "twhole": torch.tensor([1.0, -20.0]),
        "tbig": torch.tensor([3e9, 1.0]), "tnan": torch.tensor([float("nan"), 1.5, float("-inf")]), "tzero": torch.zeros(3), "tlines": torch.rand(30), "tneg": -torch.rand(2, 9),
        "thalf": torch.rand(3).half(), "tints": torch.randint(-100, 10**6, (30,)), "tempty": torch.zeros(0, 3), "tbf": torch.rand(2).bfloat16(), "t0": torch.tensor(7),
    }.items():
        arrays[k] = a
    arrays = {k: a for k, a in arrays.items() if not (isinstance(a, torch.Tensor) and a.layout != torch.strided)}
    torch.save(arrays, out + "/str.bin")
    with open(out + "/str.json", "w") as f: json.dump({k: str(a) for k, a in arrays.items()}, f)


def main():
    cmd, args = sys.argv[1], sys.argv[2:]
    dump = lambda o: json.dumps(o, separators=(",", ":"))
    if cmd == "view":
        for f in args:
            try: o = torch.load(f, map_location="cpu")
            except Exception: o = pickle.load(open(f, "rb"))
            print(dump(view(o)))
        return
    if cmd == "both":
        for f in args[3:]: print(dump(view(torch.load(f, map_location="cpu"))))
        strings(args[0])
    out, n, seed = args[0], int(args[1]), int(args[2])
    sys.setrecursionlimit(10000)
    for i in range(n):
        g = Gen(seed * 1000003 + i)
        samples = [g.sample(k) for k in range(g.r.choice([0, 1, 2, 3, 7]))]
        k = g.r.randrange(10)
        o = samples if k == 0 else {"samples": samples} if k == 1 else [samples[j:j + 2] for j in range(0, len(samples), 2)] if k == 2 else {"rollout_id": i, "samples": samples, "after": g.value(3)}
        proto = g.r.randrange(6)
        path = "%s/%d.pt" % (out, i)
        kind = g.r.choice(["zip", "zip", "legacy", "pickle"])
        def save(proto):
            if kind == "pickle":
                with open(path, "wb") as f: pickle.dump(o, f, protocol=proto)
            else:
                torch.save(o, path, pickle_protocol=max(proto, 1), _use_new_zipfile_serialization=kind == "zip")
        try: save(proto)
        except TypeError: save(2)  # __slots__ needs it
        with open("%s/%d.json" % (out, i), "w") as f: f.write(dump(view(o)))


main()
