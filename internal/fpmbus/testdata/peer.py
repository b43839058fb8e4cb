"""The other side of the bus, with libzmq and Python's msgpack. Prints one JSON object a line; ends with its stdin.

engine ENDPOINT COUNT RATE FIRST   a socket as an engine binds it; prints {"bound"}, waits for a line on stdin and a subscriber, sends
plane ENDPOINT COUNT RATE PUBLISHER TOPIC [connect]   the same for the event plane
sub ENDPOINT TOPIC EXPECT          a SUB socket; prints {"ready"}, then what it got after EXPECT messages or 2 min
broker [XSUB XPUB]                 XSUB and XPUB, on free ports unless they are named; prints {"xsub", "xpub"}

An engine has a PUB socket, which tells nobody that it has a subscriber. So that no message goes out before there is
one, the sockets here are XPUB, unless PUB=1 is in the environment: then nothing is waited for.
"""
import hashlib
import json
import os
import struct
import sys
import threading
import time

import msgpack
import zmq

ctx = zmq.Context()


def say(**kw):
    print(json.dumps(kw), flush=True)


def payload(i, publisher=0):
    part = {"num_prefill_requests": i % 3, "sum_prefill_tokens": i, "var_prefill_length": 0.5,
            "num_decode_requests": 2, "sum_decode_kv_tokens": 1024, "var_decode_kv_tokens": 50.0}
    return msgpack.packb({"version": 1, "worker_id": str(publisher), "dp_rank": 0, "counter_id": i, "wall_time": 0.025,
                          "scheduled_requests": dict(part, sum_prefill_kv_tokens=64), "queued_requests": part})


def publisher_socket(hwm):
    s = ctx.socket(zmq.PUB if os.environ.get("PUB") else zmq.XPUB)
    s.setsockopt(zmq.SNDHWM, hwm)
    return s


def wait_for_subscriber(s):
    if not os.environ.get("PUB"):
        assert s.recv()[:1] == b"\x01"


def bind(s, endpoint):
    if endpoint == "tcp":
        endpoint = "tcp://127.0.0.1:%d" % s.bind_to_random_port("tcp://127.0.0.1")
    else:
        s.bind(endpoint)
    return endpoint


def send(count, rate, frames):
    start = time.monotonic()
    digest = hashlib.sha256()
    for i in range(count):
        if rate > 0:
            ahead = i / rate - (time.monotonic() - start)
            if ahead > 0.001:
                time.sleep(ahead)
        digest.update(frames(i))
    say(sent=count, seconds=time.monotonic() - start, sha256=digest.hexdigest())


def main():
    args = sys.argv[2:]
    if sys.argv[1] == "engine":
        s = publisher_socket(int(os.environ.get("SNDHWM", "0")))
        say(bound=bind(s, args[0]))
        count, rate, first = int(args[1]), float(args[2]), int(args[3])

        def one(i):
            p = payload(first + i)
            s.send_multipart([b"", struct.pack(">Q", first + i), p])
            return p
        sys.stdin.readline()
        wait_for_subscriber(s)
        send(count, rate, one)
    elif sys.argv[1] == "plane":
        s = publisher_socket(0)
        if len(args) > 5:
            s.connect(args[0])
            say(bound=args[0])
        else:
            say(bound=bind(s, args[0]))
        count, rate, publisher, topic = int(args[1]), float(args[2]), int(args[3]), args[4]

        def one(i):
            p = payload(i, publisher)
            e = msgpack.packb({"publisher_id": publisher, "sequence": i, "published_at": int(time.time() * 1000),
                               "topic": "forward-pass-metrics", "payload": p})
            s.send_multipart([topic.encode(), struct.pack(">Q", publisher), struct.pack(">Q", i),
                              struct.pack(">BI", 1, len(e)) + e])
            return p
        waited = False
        for line in sys.stdin:
            if line.strip() == "go":
                if not waited:
                    wait_for_subscriber(s)
                    waited = True
                send(count, rate, one)
    elif sys.argv[1] == "sub":
        s = ctx.socket(zmq.SUB)
        s.setsockopt(zmq.RCVHWM, 0)
        s.setsockopt(zmq.SUBSCRIBE, args[1].encode())
        s.connect(args[0])
        say(ready=True)
        expect, digest, n, gaps, last, seen = int(args[2]), hashlib.sha256(), 0, 0, {}, {}
        end = time.monotonic() + 120
        while n < expect and time.monotonic() < end:
            if not s.poll(100):
                continue
            topic, publisher, sequence, event = s.recv_multipart()
            version, size = struct.unpack(">BI", event[:5])
            e = msgpack.unpackb(event[5:])
            assert version == 1 and size == len(event) - 5, event[:5]
            assert struct.unpack(">Q", publisher)[0] == e["publisher_id"]
            assert struct.unpack(">Q", sequence)[0] == e["sequence"]
            digest.update(e["payload"])
            key = (topic, e["publisher_id"])
            gaps += e["sequence"] - last.get(key, -1) - 1
            last[key] = e["sequence"]
            seen[topic.decode()] = seen.get(topic.decode(), 0) + 1
            n += 1
        say(got=n, gaps=gaps, sha256=digest.hexdigest(), topics=seen)
    elif sys.argv[1] == "broker":
        xsub, xpub = ctx.socket(zmq.XSUB), ctx.socket(zmq.XPUB)
        xsub.setsockopt(zmq.RCVHWM, 0)
        xpub.setsockopt(zmq.SNDHWM, 0)
        at = args or ["tcp", "tcp"]
        say(xsub=bind(xsub, at[0]), xpub=bind(xpub, at[1]))
        threading.Thread(target=zmq.proxy, args=(xsub, xpub), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


main()
