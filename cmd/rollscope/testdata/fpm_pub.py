"""A PUB socket as an engine binds it, with libzmq and Python's msgpack: binds ENDPOINT, says where that is, sends 100 passes a second until killed."""
import itertools
import struct
import sys
import time

import msgpack
import zmq

s = zmq.Context().socket(zmq.PUB)
s.bind(sys.argv[1])
print("bound", s.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
part = {"num_prefill_requests": 0, "sum_prefill_tokens": 0, "var_prefill_length": 0.0,
        "num_decode_requests": 3, "sum_decode_kv_tokens": 4096, "var_decode_kv_tokens": 50.0}
for i in itertools.count():
    body = {"version": 1, "worker_id": "18446744073709551557", "dp_rank": 0, "counter_id": i, "wall_time": 0.009,
            "scheduled_requests": dict(part, sum_prefill_kv_tokens=0), "queued_requests": part}
    s.send_multipart([b"", struct.pack(">Q", i), msgpack.packb(body)])
    time.sleep(0.01)
