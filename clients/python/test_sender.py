"""Tests of the sender against a real HTTP server: python3 -m unittest, from this directory."""

import enum
import gzip
import http.server
import json
import logging
import math
import os
import socket
import threading
import unittest

import rollscope_trace as rt
from rollscope_trace import Sender, trace_span
from test_trace import Sample

LONG = 60  # seconds that a busy machine may need for what takes milliseconds


class Server:
    """Keeps what was posted; answers with the given statuses first, then with 200."""

    def __init__(self, statuses=(), hold=None):
        self.requests, self.statuses, self.arrived = [], list(statuses), threading.Event()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.requests.append((self.path, self.headers, body))
                owner.arrived.set()
                if hold is not None:
                    hold.wait(LONG)
                status = owner.statuses.pop(0) if owner.statuses else 200
                if status == "hang up":
                    self.close_connection = True
                    return
                answer = b'{"data":{}}'
                self.send_response(status)
                if status == 503:
                    self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()

    def batches(self):
        out = []
        for _, _, body in self.requests:
            header, *lines = gzip.decompress(body).decode("ascii").splitlines()
            out.append((json.loads(header), [json.loads(line) for line in lines]))
        return out


class TestSender(unittest.TestCase):
    def setUp(self):
        rt._state.__init__()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def server(self, *args, **kwargs):
        server = Server(*args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def sender(self, url, **kwargs):
        kwargs.setdefault("backoff", (0.001, 0.002))
        sender = Sender(url, run="math-7b", **kwargs)
        self.addCleanup(sender.close, 0)
        return sender

    def test_a_rollout_in_batches(self):
        server = self.server()
        sender = self.sender(server.url + "/", token="secret", batch=2)
        samples = [{"index": i, "tokens": [1, 2, 3], "loss_mask": [0, 1], "reward": float(i)} for i in range(5)]
        self.assertEqual(sender.send_samples(samples, 7), 5)
        self.assertTrue(sender.close(LONG))
        path, headers, _ = server.requests[0]
        self.assertEqual(path, "/api/rollscope/v1/rollouts")
        self.assertEqual(headers["Authorization"], "Bearer secret")
        self.assertEqual((headers["Content-Type"], headers["Content-Encoding"]), ("application/x-ndjson", "gzip"))
        batches = server.batches()
        upload = batches[0][0]["upload"]
        self.assertEqual(
            [h for h, _ in batches],
            [
                {"version": 1, "run": "math-7b", "kind": "train", "rollout_id": 7, "part": i, "parts": 3 if i == 2 else None, "final": i == 2,
                 "batch_id": "%s-%d" % (upload, i), "upload": upload, "lost": 0}
                for i in range(3)
            ],
        )  # fmt: skip
        self.assertEqual([h["Idempotency-Key"] for _, h, _ in server.requests], [h["batch_id"] for h, _ in batches])
        self.assertEqual([len(lines) for _, lines in batches], [2, 2, 1])
        self.assertEqual(batches[0][1][1], {"index": 1, "reward": 1.0, "token_count": 3, "effective_response_length": 1})
        stats = sender.stats()
        self.assertEqual((stats["sent_batches"], stats["sent_samples"], stats["dropped_samples"]), (3, 5, {}))

    def test_in_several_calls_and_evaluation(self):
        server = self.server()
        sender = self.sender(server.url)
        sender.send_samples([{"index": 0}], 1, final=False)
        sender.send_samples(iter([[{"index": 1}], [[{"index": 2}]]]), 1)
        sender.send_samples({"aime": {"samples": [{"index": 3}]}, "gsm8k": {"samples": [{"index": 4, "dataset": "own"}]}}, 1, evaluation=True)
        sender.send_samples([], 2)
        self.assertTrue(sender.flush(LONG))
        got = server.batches()
        self.assertEqual(
            [(h["kind"], h["rollout_id"], h["part"], h["parts"], h["final"], [line["index"] for line in lines]) for h, lines in got],
            [("train", 1, 0, None, False, [0]), ("train", 1, 1, 2, True, [1, 2]), ("eval", 1, 0, 1, True, [3, 4]), ("train", 2, 0, 1, True, [])],
        )
        self.assertEqual([line["dataset"] for line in got[2][1]], ["aime", "own"])
        self.assertEqual(got[0][0]["upload"], got[1][0]["upload"])
        self.assertEqual(len({h["upload"] for h, _ in got}), 3)

    def test_what_json_cannot_say(self):
        class Status(enum.Enum):
            DONE = "completed"

        class Array:  # as numpy's and torch's
            def __init__(self, shape, value):
                self.shape, self.value = shape, value

            def tolist(self):
                return self.value

            def __str__(self):
                return "array(...)"

        class Odd:
            def __str__(self):
                raise RuntimeError("odd")

        class Slime:
            def __init__(self):
                self.index = 9

            def to_dict(self):
                return {"index": self.index, "status": Status.DONE, "spec_info": {"a": 1}}

        loop = {}
        loop["self"] = loop
        deep = []
        for _ in range(5000):
            deep = [deep]
        samples = [
            {"reward": math.nan, "a": math.inf, "b": -math.inf, "c": [1.5]},
            {"status": Status.DONE, "set": {1}, "bytes": b"x", 1: "key", "scalar": Array((), 2.5), "vector": Array((2,), [1, math.nan]), "big": Array((999, 999), 0)},
            {"odd": Odd(), "loop": loop, "deep": deep, "int": 10**5000, "surrogate": "\ud800", ("a", 1): 2, "cls": dict},
            Slime(), Sample(index=3), {"metadata": {"v": 2**70}},
        ]  # fmt: skip
        server = self.server()
        sender = self.sender(server.url, batch=100)
        self.assertEqual(sender.send_samples(samples, 0), 6)
        self.assertTrue(sender.flush(LONG))
        lines = server.batches()[0][1]
        self.assertEqual(lines[0], {"reward": "NaN", "a": "Infinity", "b": "-Infinity", "c": [1.5]})
        self.assertEqual(
            lines[1],
            {"status": "completed", "set": [1], "bytes": "b'x'", "1": "key", "scalar": 2.5, "vector": [1, "NaN"], "big": "array(...)"},
        )
        self.assertEqual((lines[2]["surrogate"], lines[2]["('a', 1)"], lines[2]["cls"]), ("\ud800", 2, "<class 'dict'>"))
        self.assertIn("cannot be read", lines[2]["odd"])
        self.assertIn("nested deeper", json.dumps(lines[2]["loop"]))
        self.assertEqual(lines[2]["int"][:2], "0x")
        self.assertEqual(lines[3], {"index": 9, "status": "completed", "spec_info": {"a": 1}})
        self.assertEqual(lines[4], {"group_index": None, "index": 3, "prompt": "", "metadata": {}})
        self.assertEqual(lines[5], {"metadata": {"v": 2**70}})
        self.assertEqual(rt.stats()["errors"], {})

    def test_fields(self):
        sample = Sample(index=0, prompt="secret")
        with trace_span(sample, "s"):
            pass
        sample.tokens, sample.rollout_log_probs, sample.loss_mask = [5], [0.5], [1, 1, 0]
        server = self.server()
        self.sender(server.url, include=["tokens"], exclude=["prompt"]).send_samples([sample], 0)
        self.assertTrue(server.arrived.wait(LONG))
        self.assertEqual(
            server.batches()[0][1],
            [{"group_index": None, "index": 0, "metadata": {}, "trace": sample.trace, "tokens": [5], "effective_response_length": 2}],
        )

    def test_later_changes_are_not_sent(self):
        hold = threading.Event()
        server = self.server(hold=hold)
        sender = self.sender(server.url)
        sample = {"index": 0, "metadata": {"a": 1}}
        sender.send_samples([sample], 0)
        sample["metadata"]["a"] = 2
        hold.set()
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(server.batches()[0][1][0]["metadata"], {"a": 1})

    def test_retries_with_the_same_batch_id(self):
        server = self.server([500, 503, "hang up", 429])
        sender = self.sender(server.url)
        sender.send_samples([{"index": 0}], 0)
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(len(server.requests), 5)
        self.assertEqual(len({h["batch_id"] for h, _ in server.batches()}), 1)
        stats = sender.stats()
        self.assertEqual((stats["sent_samples"], stats["retries"], stats["dropped_samples"]), (1, 3, {}))  # a kept connection that was hung up is tried again at once

    def test_rejected_and_given_up(self):
        server = self.server([400] + [500] * 3)
        sender = self.sender(server.url, retries=2)
        sender.send_samples([{"index": 0}, {"index": 1}], 0)
        sender.send_samples([{"index": 0}], 1)
        sender.send_samples([{"index": 0}], 2)
        self.assertTrue(sender.flush(LONG))
        stats = sender.stats()
        self.assertEqual(stats["dropped_samples"], {"rejected": 2, "retries": 1})
        self.assertEqual(stats["sent_samples"], 1)
        self.assertEqual(rt.stats()["errors"], {"send_rejected": 1, "send_retries": 1})

    def test_nobody_listens(self):
        taken = socket.socket()  # the port is bound, so nobody else can come to listen there
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        sender = self.sender("http://127.0.0.1:%d" % taken.getsockname()[1], retries=1)
        sender.send_samples([{"index": 0}], 0)
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(sender.stats()["dropped_samples"], {"retries": 1})

    def test_bounded_queue_counts_what_it_drops(self):
        hold = threading.Event()
        server = self.server(hold=hold)
        sender = self.sender(server.url, batch=1, max_queue=2)
        sender.send_samples([{"index": 0}], 0)
        self.assertTrue(server.arrived.wait(LONG))  # it is under way, not in the queue
        self.assertEqual(sender.send_samples([{"index": i} for i in range(5)], 1, final=False), 2)
        self.assertFalse(sender.flush(0))
        hold.set()
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(sender.send_samples([{"index": 9}], 1), 1)
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(sender.stats()["dropped_samples"], {"queue_full": 3})
        last = server.batches()[-1][0]
        self.assertEqual((last["part"], last["parts"], last["lost"]), (5, 6, 3))

    def test_bytes_bound_the_queue_and_the_batch(self):
        hold = threading.Event()
        server = self.server(hold=hold)
        sender = self.sender(server.url, max_batch_bytes=500, max_queue_bytes=1100, max_sample_bytes=2000)
        sender.send_samples([{"index": 0}], 0)
        self.assertTrue(server.arrived.wait(LONG))
        big = {"prompt": "x" * 380}
        self.assertEqual(sender.send_samples([big, big, big, {"prompt": "x" * 5000}], 1), 2)
        hold.set()
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(sender.stats()["dropped_samples"], {"queue_full": 1, "too_large": 1})
        self.assertEqual([len(lines) for _, lines in server.batches()], [1, 1, 1])

    def test_nothing_raises(self):
        class Mean:
            @property
            def index(self):
                raise RuntimeError("mean")

            __slots__ = ()

        sender = self.sender("http://127.0.0.1:1", retries=0)
        self.assertEqual(sender.send_samples(5, 0), 0)
        self.assertEqual(sender.send_samples([Mean()], 0), 0)
        self.assertEqual(sender.send_samples([{}], "no number"), 0)
        sender.close(LONG)
        self.assertEqual(sender.send_samples([{}], 0), 0)
        dropped = sender.stats()["dropped_samples"]
        self.assertEqual((dropped["encode"], dropped["closed"]), (2, 1))
        for url in ("ftp://x", "", "http://h:port"):
            bad = self.sender(url)
            self.assertEqual(bad.send_samples([{}], 0), 0)
            self.assertEqual(bad.stats()["dropped_samples"], {"bad_url": 1})
            self.assertTrue(bad.close(0))

    def test_close_does_not_wait_for_ever(self):
        hold = threading.Event()
        server = self.server(hold=hold)
        sender = self.sender(server.url)
        sender.send_samples([{}], 0)
        self.assertTrue(server.arrived.wait(LONG))
        sender.send_samples([{}, {}], 1)
        self.assertFalse(sender.close(0.001))
        self.assertEqual(sender.stats()["dropped_samples"], {"closed": 2})
        thread = sender._thread
        hold.set()
        thread.join(LONG)
        self.assertFalse(thread.is_alive())

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_fork(self):
        server = self.server()
        sender = self.sender(server.url)
        sender.send_samples([{"index": 0}], 0)
        self.assertTrue(sender.flush(LONG))
        pid = os.fork()
        if pid == 0:
            sender.send_samples([{"index": 1}], 1)
            os._exit(0 if sender.flush(LONG) else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual([h["rollout_id"] for h, _ in server.batches()], [0, 1])

    def test_threads_of_a_forked_child(self):
        both = threading.Barrier(2)

        class Slow(Sender):
            resets = 0

            def _reset(self):
                self.resets += 1
                if self.resets > 1:
                    try:
                        both.wait(0.3)  # for another thread that begins anew, too
                    except threading.BrokenBarrierError:
                        pass
                super()._reset()

        server = self.server()
        sender = Slow(server.url, run="math-7b")
        self.addCleanup(sender.close, 0)
        sender._changed.acquire()  # a thread of the parent held it when the child was made
        sender._pid = -1
        threads = [threading.Thread(target=sender.send_samples, args=([{"index": i}], i), daemon=True) for i in range(2)]
        threads.append(threading.Thread(target=sender.stats, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
            self.assertFalse(thread.is_alive())
        self.assertTrue(sender.flush(LONG))
        self.assertEqual(sender.resets, 2)
        self.assertEqual(sorted(h["rollout_id"] for h, _ in server.batches()), [0, 1])


if __name__ == "__main__":
    unittest.main()
