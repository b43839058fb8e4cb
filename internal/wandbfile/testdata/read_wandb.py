"""Reads a .wandb run file with the standard library only and prints its records as JSON lines.

An independent reader: the log framing (checked against zlib's CRC-32), the protobuf wire format and the
field numbers of wandb_internal.proto are written here again and share nothing with the Go code that
wrote the file. Any mismatch ends it with status 1.
"""
import json
import struct
import sys
import zlib

BLOCK = 32768


def chunks(data):
    assert data[:7] == b":W&B\xe1\xbe\x00", "file header"
    at = 7
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            assert data[at:at + left] == b"\x00" * left, "padding at %d" % at
            at += left
            continue
        crc, length, typ = struct.unpack_from("<IHB", data, at)
        assert 1 <= typ <= 4, "chunk type %d at %d" % (typ, at)
        assert 7 + length <= left, "chunk at %d crosses its block" % at
        body = data[at + 7:at + 7 + length]
        assert len(body) == length, "cut at %d" % at
        assert zlib.crc32(bytes([typ]) + body) == crc, "checksum at %d" % at
        yield typ, body
        at += 7 + length


def records(data):
    part = None
    for typ, body in chunks(data):
        if typ == 1:
            assert part is None
            yield body
        elif typ == 2:
            assert part is None
            part = body
        else:
            assert part is not None
            part += body
            if typ == 4:
                yield part
                part = None
    assert part is None, "a record without its end"


def varint(b, i):
    n = shift = 0
    while True:
        n |= (b[i] & 0x7F) << shift
        i += 1
        if not b[i - 1] & 0x80:
            return n, i
        shift += 7


def fields(b):
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        num, typ = key >> 3, key & 7
        if typ == 0:
            v, i = varint(b, i)
        elif typ == 2:
            n, i = varint(b, i)
            assert i + n <= len(b), "a field is longer than its message"
            v, i = b[i:i + n], i + n
        else:
            raise ValueError("wire type %d" % typ)
        yield num, v


def item(b):
    key, nested, value = "", [], None
    for num, v in fields(b):
        if num == 1:
            key = v.decode()
        elif num == 2:
            nested.append(v.decode())
        elif num == 16:
            value = v.decode()
    json.loads(value)  # Python's json takes NaN and Infinity, as W&B does
    return [key or ".".join(nested), value]


def items(b):
    return [item(v) for num, v in fields(b) if num == 1]


def run(b):
    out = {"tags": []}
    names = {1: "id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "display_name", 9: "notes", 13: "host"}
    for num, v in fields(b):
        if num == 4:
            out["config"] = items(v)
        elif num == 10:
            out["tags"].append(v.decode())
        elif num == 17:
            out["start_time"] = [x for _, x in sorted(fields(v))]
        else:
            out[names[num]] = v.decode()
    return out


def metric(b):
    out = {}
    for num, v in fields(b):
        if num in (1, 2, 4):
            out[{1: "name", 2: "glob", 4: "step_metric"}[num]] = v.decode()
        elif num == 6:
            out["options"] = dict((str(n), x) for n, x in fields(v))
        elif num == 10:
            out["expanded"] = v
    return out


def record(b):
    out = {}
    for num, v in fields(b):
        if num == 1:
            out["num"] = v
        elif num == 2:
            out["history"] = items(v)
            out["step"] = [dict(fields(s)).get(1, 0) for n, s in fields(v) if n == 2]
        elif num == 3:
            out["summary"] = items(v)
        elif num == 12:
            out["metric"] = metric(v)
        elif num == 17:
            out["run"] = run(v)
        elif num == 18:
            out["exit"] = dict((str(n), x) for n, x in fields(v))
        elif num == 21:
            out["header"] = dict(fields(dict(fields(v))[1]))[1].decode()
        elif num == 22:
            out["footer"] = True
        else:
            raise ValueError("a record of kind %d" % num)
    return out


with open(sys.argv[1], "rb") as f:
    for body in records(f.read()):
        print(json.dumps(record(body)))
