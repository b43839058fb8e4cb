"""Reads an event file with the standard library only and prints its events as JSON lines.

An independent reader: framing, CRC-32C and the protobuf wire format are written here from their
specifications and share nothing with the Go code that wrote the file. Any mismatch ends it with status 1.
"""
import json
import struct
import sys


def crc32c_table():
    table = []
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ 0x82F63B78 if c & 1 else c >> 1
        table.append(c)
    return table


TABLE = crc32c_table()


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 0xFF] ^ (c >> 8)
    return c ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C"


def masked(data):
    c = crc32c(data)
    return (((c >> 15) | (c << 17)) + 0xA282EAD8) & 0xFFFFFFFF


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
        elif typ == 1:
            v, i = b[i:i + 8], i + 8
        elif typ == 2:
            n, i = varint(b, i)
            assert i + n <= len(b), "a field is longer than its message"
            v, i = b[i:i + n], i + n
        elif typ == 5:
            v, i = b[i:i + 4], i + 4
        else:
            raise ValueError("wire type %d" % typ)
        yield num, typ, v


def signed(n):
    return n - (1 << 64) if n >> 63 else n


def event(b):
    e = {"wall": None, "step": 0, "values": []}
    for num, typ, v in fields(b):
        if num == 1:
            e["wall"] = struct.unpack("<d", v)[0]
        elif num == 2:
            e["step"] = signed(v)
        elif num == 3:
            e["file_version"] = v.decode()
        elif num == 5:
            for n2, _, value in fields(v):
                assert n2 == 1
                tag = number = None
                for n3, _, x in fields(value):
                    if n3 == 1:
                        tag = x.decode()
                    elif n3 == 2:
                        number = struct.unpack("<f", x)[0]
                e["values"].append([tag, repr(number)])
        elif num == 7:
            e["session"] = {n: (x.decode() if isinstance(x, bytes) else x) for n, _, x in fields(v)}
    return e


def main(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert masked(data[at:at + 8]) == crc, "length checksum at %d" % at
        payload = data[at + 12:at + 12 + length]
        assert len(payload) == length, "cut at %d" % at
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert masked(payload) == crc, "payload checksum at %d" % at
        print(json.dumps(event(payload)))
        at += 16 + length


main(sys.argv[1])
