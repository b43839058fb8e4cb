"""Writes messages as Python's msgpack does, with what they mean, as JSON to standard output.

The schema's other side: contract_test.go reads these bytes, and writes the same ones.
"""

import json
import struct

import msgpack


def part(prefill=(0, 0, 0.0), kv=None, decode=(0, 0, 0.0)):
    out = {"num_prefill_requests": prefill[0], "sum_prefill_tokens": prefill[1], "var_prefill_length": prefill[2]}
    if kv is not None:
        out["sum_prefill_kv_tokens"] = kv
    out.update({"num_decode_requests": decode[0], "sum_decode_kv_tokens": decode[1], "var_decode_kv_tokens": decode[2]})
    return out


def message(worker="7587888160958627365", rank=0, counter=42, wall=0.025, scheduled=None, queued=None, scope=None, version=1):
    out = {}
    if version is not None:
        out["version"] = version
    out["worker_id"] = worker
    out["dp_rank"] = rank
    if version is not None:
        out["counter_id"] = counter
    if scope:
        out["timing_scope"] = scope
    out["wall_time"] = wall
    out["scheduled_requests"] = scheduled or part(kv=0)
    out["queued_requests"] = queued or part()
    return out


busy = message(scheduled=part((2, 256, 100.0), 64, (3, 1024, 50.0)), queued=part((1, 128, 0.0)))
large = message(
    worker="18446744073709551615",
    rank=65535,
    counter=2**64 - 1,
    wall=1.5,
    scheduled=part((300, 70000, 1e9), 2**40, (65536, 2**53 + 1, 0.1)),
    queued=part((200, 5_000_000_000, 4.0), None, (128, 2**32, 2.5)),
)

cases = []


def add(name, packed, means, ours=None, refused=None):
    cases.append({"name": name, "hex": packed.hex(), "means": means, "layout": ours, "refused": refused})


pack = msgpack.packb
add("pass", pack(busy), busy, "default")
add("heartbeat", pack(message(wall=0.0, counter=43)), message(wall=0.0, counter=43), "default")
v0 = message(version=None, rank=1, wall=0.0131, scheduled=part((1, 512, 0.0), 0))
add("v0", pack(v0), v0, "v0")
scope = message(worker="", counter=7, scope="execute_model_cuda", wall=0.00841, scheduled=part(kv=0, decode=(8, 4096, 2.5)))
add("timing scope", pack(scope), scope, "default")
add("large", pack(large), large, "default")
unqueued = {k: v for k, v in busy.items() if k != "queued_requests"}
add("without a queue", pack(unqueued), unqueued, "no queue")
named = message(worker="w" * 40)
add("long name", pack(named), named, "default")
older = message(worker="name")
add("names as raw bytes of old msgpack", pack({k.encode(): v for k, v in older.items()}, use_bin_type=False), older)
add("names as bin", pack({k.encode(): v for k, v in older.items()}, use_bin_type=True), older)
ints = message(wall=2, scheduled=part((1, 10, 4), 0), queued=part((0, 0, 0), None, (0, 0, 0)))
add("integers where floats are", pack(ints), ints)
floats = message(scheduled=part((1.0, 10.0, 4.0), 0.0))
add("floats where integers are", pack(floats), floats)
half = message(wall=0.5)
add("single floats", pack(half, use_single_float=True), half)
swapped = dict(reversed(list(busy.items())))
add("keys in another order", pack(swapped), busy)
future = dict(busy)
future["scheduled_requests"] = dict(busy["scheduled_requests"], extend_lengths=[128, 128], past_kv_lengths=[64, 0])
future.update({"future_%d" % i: v for i, v in enumerate([None, True, -1, -200, -70000, -(2**40), "x" * 300, b"\0" * 300, [1, [2, {"a": None}]], {"b": 1.5}, msgpack.ExtType(5, b"abc"), msgpack.Timestamp(1, 2)])})
add("keys of a later schema", pack(future), busy)
add("no keys at all", pack({}), {"worker_id": "", "dp_rank": 0})

add("version 2", pack(message(version=2)), None, refused="version")
add("version 0", pack(message(version=0)), None, refused="version")
add("version as a string", pack(message(version="1")), None, refused="type")
add("array", pack(list(busy.values())), None, refused="positional")
add("array inside", pack(dict(busy, queued_requests=[1, 2, 3.0, 4, 5, 6.0])), None, refused="positional")
add("nil", pack(dict(busy, wall_time=None)), None, refused="type")
add("nil part", pack(dict(busy, queued_requests=None)), None, refused="type")
add("negative count", pack(message(scheduled=part((-1, 0, 0.0), 0))), None, refused="value")
add("negative time", pack(message(wall=-0.1)), None, refused="value")
add("not a number", pack(message(wall=float("nan"))), None, refused="value")
add("infinite variance", pack(message(scheduled=part((1, 1, float("inf")), 0))), None, refused="value")
add("half a token", pack(message(scheduled=part((1, 1.5, 0.0), 0))), None, refused="type")
add("rank too large", pack(message(rank=2**40)), None, refused="value")
add("two messages", pack(busy) + pack(busy), None, refused="trailing")
add("cut", pack(busy)[:-1], None, refused="truncated")
add("cut in the head", struct.pack(">BH", 0xDE, 7), None, refused="truncated")
add("more keys than bytes", struct.pack(">BI", 0xDF, 2**32 - 1), None, refused="truncated")
add("a string", pack("version"), None, refused="not_a_map")
add("JSON", json.dumps(busy).encode(), None, refused="not_a_map")
add("garbage", bytes.fromhex("c1ff00"), None, refused="malformed")
add("nothing", b"", None, refused="empty")
add("worker id not UTF-8", pack(dict(busy, worker_id=b"\xff\xfe")), None, refused="value")

print(json.dumps(cases, indent=1))
