"""Tests of spans, targets, functions and carriers: python3 -m unittest, from this directory."""

import asyncio
import contextvars
import json
import logging
import threading
import time
import unittest
from dataclasses import dataclass, field
from typing import Optional
from unittest import mock

import rollscope_trace as rt
from rollscope_trace import (
    bind_trace,
    build_sglang_meta_trace_attrs,
    export_trace,
    import_trace,
    merge_trace,
    trace_event,
    trace_function,
    trace_next_attempt,
    trace_span,
)


@dataclass
class Sample:
    """What slime's Sample is to tracing."""

    group_index: Optional[int] = None
    index: Optional[int] = None
    prompt: str = ""
    metadata: dict = field(default_factory=dict)


class SampleBox:
    def __init__(self, prompt_sample, generation=None):
        self.prompt_sample = prompt_sample
        self.generation = generation


def events(sample):
    return sample.trace["events"]


def shape(sample):
    return [(e["type"], e["name"]) for e in events(sample)]


def tree(sample):
    """Names of spans and events with the names of their parents, in order."""
    names = {e["span_id"]: e["name"] for e in events(sample) if e["type"] == "span_start"}
    return [(e["name"], names.get(e.get("parent_span_id"), e.get("parent_span_id"))) for e in events(sample) if e["type"] != "span_end"]


class Case(unittest.TestCase):
    def setUp(self):
        rt._state.__init__()
        rt.configure(enabled=True, max_events=rt.DEFAULT_MAX_EVENTS)
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def clean(self):
        self.assertEqual(rt.stats()["errors"], {})


class TestSlimesGuide(Case):
    """The three samples of slime's guide to instrumentation, their imports apart."""

    def test_rollout_functions(self):
        @trace_function("generate_and_rm", target="sample")
        async def generate_and_rm(args, sample, sampling_params, evaluation=False):
            await asyncio.sleep(0)
            return sample

        @trace_function(
            "generate_and_rm_group",
            target="group",
            attrs_getter=lambda args, group, sampling_params, evaluation=False: {"group_size": len(group)},
        )
        async def generate_and_rm_group(args, group, sampling_params, evaluation=False):
            return await asyncio.gather(*(generate_and_rm(args, s, sampling_params, evaluation=evaluation) for s in group))

        group = [Sample(group_index=3, index=i) for i in range(4)]
        out = asyncio.run(generate_and_rm_group(None, group, {}))
        self.assertEqual(out, group)
        for i, sample in enumerate(group):
            self.assertEqual(
                shape(sample),
                [("span_start", "generate_and_rm_group"), ("span_start", "generate_and_rm"), ("span_end", "generate_and_rm"), ("span_end", "generate_and_rm_group")],
            )
            self.assertEqual(tree(sample), [("generate_and_rm_group", None), ("generate_and_rm", "generate_and_rm_group")])
            self.assertEqual(events(sample)[0]["attrs"], {"group_size": 4})
            self.assertEqual((sample.trace["sample_id"], sample.trace["group_id"]), (i, 3))
        self.assertEqual(len({s.trace["trace_id"] for s in group}), 4)
        self.clean()

    def test_custom_batch(self):
        @trace_function(
            "custom_rollout_batch",
            target="samples",
            attrs_getter=lambda samples, **_: {"batch_size": len(samples)},
        )
        async def custom_rollout_batch(samples, **kwargs):
            return len(kwargs)

        samples = [Sample(index=0), Sample(index=1)]
        self.assertEqual(asyncio.run(custom_rollout_batch(samples, a=1, b=2)), 2)
        for s in samples:
            self.assertEqual(shape(s), [("span_start", "custom_rollout_batch"), ("span_end", "custom_rollout_batch")])
            self.assertEqual(events(s)[0]["attrs"], {"batch_size": 2})
        self.clean()

    def test_sglang_generate(self):
        async def post(url, payload):
            return {"meta_info": {"prompt_tokens": 3, "completion_tokens": 2, "finish_reason": {"type": "stop"}, "id": "r1"}}

        async def run(sample, url, payload):
            with trace_span(sample, "sglang_generate") as span:
                output = await post(url, payload)
                span.update(build_sglang_meta_trace_attrs(output["meta_info"]))

        sample = Sample(index=0)
        asyncio.run(run(sample, "u", {}))
        self.assertEqual(shape(sample), [("span_start", "sglang_generate"), ("span_end", "sglang_generate")])
        self.assertEqual(
            events(sample)[1]["attrs"], {"prompt_tokens": 3, "completion_tokens": 2, "finish_reason": "stop", "sglang_request_id": "r1"}
        )
        self.assertNotIn("attrs", events(sample)[0])
        self.clean()


class TestFormat(Case):
    def test_event_keys_in_slimes_order(self):
        sample = Sample(group_index=1, index=7)
        with trace_span(sample, "outer", attrs={"a": 1}):
            with trace_span(sample, "inner", attrs={"b": 2}):
                trace_event(sample, "point", attrs={"c": 3})
        self.assertEqual(list(sample.trace), ["version", "trace_id", "events", "sample_id", "group_id", "attempt"])
        head = ["type", "name", "ts", "trace_id", "sample_id", "group_id", "attempt"]
        self.assertEqual(
            [list(e) for e in events(sample)],
            [
                head + ["span_id", "attrs"],
                head + ["span_id", "parent_span_id", "attrs"],
                head + ["parent_span_id", "attrs"],
                head + ["span_id"],
                head + ["span_id"],
            ],
        )
        self.assertEqual(sample.trace["version"], 1)
        self.assertRegex(sample.trace["trace_id"], "^[0-9a-f]{32}$")
        self.assertEqual({(e["trace_id"], e["sample_id"], e["group_id"], e["attempt"]) for e in events(sample)}, {(sample.trace["trace_id"], 7, 1, 0)})
        json.dumps(sample.trace)
        self.clean()

    META = {
        "prompt_tokens": 12, "completion_tokens": 7, "cached_tokens": 3, "queue_time": 0.5, "e2e_latency": 2.0, "decode_throughput": None,
        "pd_prefill_bootstrap_queue_duration": 0.25, "pd_prefill_forward_duration": 0.125, "pd_prefill_alloc_wait_duration": 0,
        "pd_decode_transfer_duration": 0.5, "pd_decode_forward_duration": "1", "pd_decode_prealloc_duration": float("nan"),
        "pd_transfer_speed_gb_s": 20.0, "pd_prefill_retry_count": 0, "finish_reason": {"type": "stop"}, "unused_field": "ignored",
    }  # fmt: skip

    def test_sglang_meta(self):
        attrs = build_sglang_meta_trace_attrs(self.META)
        children = attrs.pop(rt.TRACE_CHILDREN_KEY)
        self.assertEqual(
            attrs, {"prompt_tokens": 12, "completion_tokens": 7, "cached_tokens": 3, "queue_time": 0.5, "e2e_latency": 2.0, "finish_reason": "stop"}
        )
        self.assertEqual([c["name"] for c in children], ["sglang_pd_prefill", "sglang_pd_decode", "sglang_pd_summary"])
        self.assertEqual(
            children[0],
            {
                "type": "span", "name": "sglang_pd_prefill", "start_offset": 0.0, "end_offset": 0.375,
                "attrs": {"phase": "prefill", "duration_s": 0.375},
                "children": [
                    {"type": "span", "name": "sglang_pd_prefill_bootstrap_queue", "start_offset": 0.0, "end_offset": 0.25, "attrs": {"pd_prefill_bootstrap_queue_duration": 0.25}},
                    {"type": "span", "name": "sglang_pd_prefill_forward", "start_offset": 0.25, "end_offset": 0.375, "attrs": {"pd_prefill_forward_duration": 0.125}},
                ],
            },
        )  # fmt: skip
        self.assertEqual((children[1]["start_offset"], children[1]["end_offset"]), (0.375, 1.875))
        self.assertEqual(children[1]["children"][1]["attrs"], {"pd_decode_forward_duration": "1"})
        self.assertEqual(
            children[2],
            {"type": "event", "name": "sglang_pd_summary", "start_offset": 1.875, "attrs": {"pd_transfer_speed_gb_s": 20.0, "pd_prefill_retry_count": 0}},
        )
        self.clean()

    def test_sglang_old_names_odd_values(self):
        attrs = build_sglang_meta_trace_attrs({"pd_bootstrap_duration": 1.0, "pd_alloc_waiting_duration": 2.0, "pd_decode_forward_duration": "x"})
        inside = attrs[rt.TRACE_CHILDREN_KEY][0]["children"]
        self.assertEqual([c["attrs"] for c in inside], [{"pd_prefill_bootstrap_duration": 1.0}, {"pd_prefill_alloc_wait_duration": 2.0}])
        self.assertEqual(build_sglang_meta_trace_attrs({"finish_reason": "abort"}), {"finish_reason": "abort"})
        self.assertEqual(build_sglang_meta_trace_attrs(None), {})
        self.assertEqual(rt.stats()["errors"], {"sglang_meta": 2})

    def test_children_stand_before_the_end(self):
        sample = Sample(index=0)
        with trace_span(sample, "sglang_generate") as span:
            span.update(build_sglang_meta_trace_attrs(self.META))
        s, e = "span_start", "span_end"
        self.assertEqual(
            shape(sample),
            [
                (s, "sglang_generate"),
                (s, "sglang_pd_prefill"),
                (s, "sglang_pd_prefill_bootstrap_queue"), (e, "sglang_pd_prefill_bootstrap_queue"),
                (s, "sglang_pd_prefill_forward"), (e, "sglang_pd_prefill_forward"),
                (e, "sglang_pd_prefill"),
                (s, "sglang_pd_decode"),
                (s, "sglang_pd_decode_transfer"), (e, "sglang_pd_decode_transfer"),
                (s, "sglang_pd_decode_forward"), (e, "sglang_pd_decode_forward"),
                (e, "sglang_pd_decode"),
                ("event", "sglang_pd_summary"),
                (e, "sglang_generate"),
            ],
        )  # fmt: skip
        self.assertEqual(tree(sample)[1:3], [("sglang_pd_prefill", "sglang_generate"), ("sglang_pd_prefill_bootstrap_queue", "sglang_pd_prefill")])
        self.assertEqual(tree(sample)[-1], ("sglang_pd_summary", "sglang_generate"))
        start = events(sample)[0]["ts"]
        self.assertAlmostEqual(events(sample)[12]["ts"] - start, 1.875, places=5)
        for event in events(sample)[1:-2]:  # a child's attributes stand at its end
            self.assertEqual("attrs" in event, event["type"] == "span_end")
        self.clean()

    def test_bad_children_are_counted(self):
        sample = Sample(index=0)
        with trace_span(sample, "s") as span:
            span.update({rt.TRACE_CHILDREN_KEY: [
                {"type": "span", "name": "ok", "start_offset": 0, "end_offset": 1, "children": 5},
                {"type": "span", "name": "backwards", "start_offset": 2, "end_offset": 1},
                {"type": "span", "name": "", "start_offset": 0, "end_offset": 1},
                {"type": "event", "name": "nan", "start_offset": float("nan")},
                "text", {"type": "event", "name": "no offset"},
            ]})  # fmt: skip
        self.assertEqual(shape(sample), [("span_start", "s"), ("span_start", "ok"), ("span_end", "ok"), ("span_end", "s")])
        self.assertEqual(rt.stats()["errors"], {"child": 6})


class TestSpan(Case):
    def test_set_and_update_also_after_the_end(self):
        sample = Sample(index=0)
        with trace_span([sample, Sample(index=1)], "s") as span:
            self.assertIs(span.set("a", 1).update({"b": 2}).set_attr("c", 3).update_attrs({"d": 4}).update(None), span)
            self.assertEqual(len(span.handles), 2)
            self.assertFalse(span.closed)
        self.assertTrue(span.closed)
        span.update({"late": 5})
        self.assertEqual(events(sample)[-1]["attrs"], {"a": 1, "b": 2, "c": 3, "d": 4, "late": 5})
        self.clean()

    def test_every_way_out_ends_the_span(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        for exc, want in [
            (ValueError("x" * 5000), {"error_type": "ValueError", "error_message": "x" * 4096 + "..."}),
            (KeyboardInterrupt(), {"error_type": "KeyboardInterrupt", "error_message": ""}),
            (SystemExit(3), {"error_type": "SystemExit", "error_message": "3"}),
            (asyncio.CancelledError(), {"error_type": "CancelledError", "error_message": ""}),
            (Odd(), {"error_type": "Odd", "error_message": "(its text cannot be read)"}),
            (GeneratorExit(), {}),
        ]:
            sample = Sample(index=0)
            with self.assertRaises(type(exc)) as caught:
                with trace_span(sample, "s") as span:
                    span.set("k", 1)
                    raise exc
            self.assertIs(caught.exception, exc)
            self.assertEqual(events(sample)[-1]["attrs"], {"k": 1, **want})
            self.assertEqual(rt._stack.get(), ())
        with self.assertRaises(ValueError):
            with trace_span(sample, "s", record_error=False):
                raise ValueError("x")
        self.assertNotIn("attrs", events(sample)[-1])
        self.clean()

    def test_timeout_ends_the_span(self):
        sample = Sample(index=0)

        async def tool():
            with trace_span(sample, "tool"):
                await asyncio.Event().wait()

        async def run():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(tool(), 0.001)

        asyncio.run(run())
        self.assertEqual(shape(sample), [("span_start", "tool"), ("span_end", "tool")])
        self.assertEqual(events(sample)[1]["attrs"]["error_type"], "CancelledError")
        self.clean()

    def test_clock_steps_back(self):
        sample = Sample(index=0)
        wall, mono = [1000.0], [50.0]
        with mock.patch.object(time, "time", lambda: wall[0]), mock.patch.object(time, "perf_counter", lambda: mono[0]):
            with trace_span(sample, "outer"):
                mono[0] += 1
                wall[0] -= 3600
                with trace_span(sample, "inner"):
                    mono[0] += 1
                    trace_event(sample, "point")
                mono[0] += 1
            trace_event(sample, "outside")
        self.assertEqual([e["ts"] for e in events(sample)], [1000.0, 1001.0, 1002.0, 1002.0, 1003.0, -2600.0])
        self.clean()

    def test_tasks_nest_in_their_own_context(self):
        sample = Sample(index=0)

        async def turn(name, first, then):
            with trace_span(sample, name):
                await (first.wait() if first else asyncio.sleep(0))
                trace_event(sample, name + "_event")
                if then:
                    then.set()

        async def run():
            done = asyncio.Event()
            with trace_span(sample, "root"):
                await asyncio.gather(turn("a", done, None), turn("b", None, done))

        asyncio.run(run())
        self.assertEqual(tree(sample), [("root", None), ("a", "root"), ("b", "root"), ("b_event", "b"), ("a_event", "a")])
        self.clean()

    def test_async_with(self):
        sample = Sample(index=0)

        async def run():
            async with trace_span(sample, "s") as span:
                span.set("k", 1)

        asyncio.run(run())
        self.assertEqual(events(sample)[-1]["attrs"], {"k": 1})

    def test_left_in_another_context(self):
        sample = Sample(index=0)
        span = trace_span(sample, "s")
        contextvars.copy_context().run(span.__enter__)
        with trace_span(sample, "other"):
            span.__exit__(None, None, None)
            trace_event(sample, "e")
        self.assertEqual(tree(sample)[-1], ("e", "other"))
        self.assertEqual(rt._stack.get(), ())
        self.clean()

    def test_ended_out_of_order(self):
        sample = Sample(index=0)
        a, b = trace_span(sample, "a"), trace_span(sample, "b")
        a.__enter__(), b.__enter__()
        a.__exit__(None, None, None)
        trace_event(sample, "e")
        b.__exit__(None, None, None)
        self.assertEqual(tree(sample)[-1], ("e", "b"))
        self.assertEqual(rt._stack.get(), ())


class TestTargets(Case):
    def test_kinds(self):
        class Slots:
            __slots__ = ("trace", "index")

        slots = Slots()
        slots.index = "s-1"
        plain = {"index": 4, "group_index": 2}
        inner = Sample(index=9)
        outer = Sample(index=8)
        handle = bind_trace(Sample(index=5))
        for target, want in [
            (Sample(index=1), [1]), (slots, ["s-1"]), (plain, [4]), ({"trace": None}, [None]), (handle, [5]), (handle.carrier, [5]),
            ([Sample(index=1), [Sample(index=2), handle]], [1, 2, 5]), ((Sample(index=1),), [1]),
            (SampleBox(outer), [8]), (SampleBox(outer, [inner]), [9]), ([SampleBox(outer, inner), None], [9]),
        ]:  # fmt: skip
            with trace_span(target, "s") as span:
                pass
            self.assertEqual([h.sample_id for h in span.handles], want)
            self.assertEqual([len([e for e in h.carrier["events"] if e["name"] == "s"]) % 2 for h in span.handles], [0] * len(want))
        self.assertEqual(plain["trace"]["group_id"], 2)
        self.assertFalse(hasattr(outer, "x"))
        self.clean()

    def test_nothing_to_trace(self):
        for target in (None, [], ()):
            with trace_span(target, "s") as span:
                span.set("k", 1).update({"j": 2})
            trace_event(target, "e")
            self.assertIs(trace_next_attempt(target), target)
        self.clean()

    def test_failures_stay_inside(self):
        class Mean:
            @property
            def trace(self):
                raise RuntimeError("mean")

        class Frozen:
            __slots__ = ("index",)

        class Tensor:
            def trace(self):
                return 0

        for target in (5, "text", Mean(), Frozen(), Tensor(), {"a": 1}, {"trace": True}, len, math_module(), {"trace": {"events": 5}}, {"trace": {"attempt": "abc"}}):
            before = rt.stats()["errors"]
            ran = []
            with trace_span(target, "s") as span:
                span.update({"k": 1})
                ran.append(1)
            trace_event(target, "e")
            self.assertIs(trace_next_attempt(target), target)
            self.assertEqual(bind_trace(target).trace_id, "")
            self.assertEqual(export_trace(target)["trace_id"], "")
            after = rt.stats()["errors"]
            self.assertEqual(ran, [1])
            for kind in ("span", "event", "next_attempt", "bind", "export"):
                self.assertEqual(after.get(kind, 0) - before.get(kind, 0), 1, (kind, target))
        with trace_span(Sample(), "s") as span:
            span.update(5)
        self.assertEqual(rt.stats()["errors"]["update"], 1)
        self.assertEqual(import_trace(None).trace_id, "")
        self.assertEqual(merge_trace(Sample(), 7), 0)
        self.assertEqual(rt.bind_trace_carrier({"events": 7}, parent_span_id="p").parent_span_id, "p")

    def test_each_kind_is_logged_once(self):
        logging.disable(logging.NOTSET)
        with self.assertLogs("rollscope_trace", "WARNING") as logs:
            for _ in range(3):
                trace_event(5, "e")
                with trace_span(5, "s"):
                    pass
        self.assertEqual(len(logs.output), 2)
        self.assertEqual(rt.stats()["errors"], {"event": 3, "span": 3})

    def test_disabled(self):
        rt.configure(enabled=False)
        sample = Sample(index=0)
        with trace_span(sample, "s") as span:
            span.set("k", 1)
        trace_event(sample, "e")
        self.assertEqual(trace_function("f", target="sample")(lambda sample: 7)(sample), 7)
        self.assertFalse(hasattr(sample, "trace"))

    def test_next_attempt(self):
        sample, other = Sample(index=0), Sample(index=1)
        trace_event(sample, "before")
        handle = trace_next_attempt(sample, attrs={"why": "abort"})
        self.assertEqual((handle.attempt, sample.trace["attempt"]), (1, 1))
        trace_event(sample, "after")
        self.assertEqual([(e["name"], e["attempt"]) for e in events(sample)], [("before", 0), ("attempt_start", 1), ("after", 1)])
        self.assertEqual(events(sample)[1]["attrs"], {"attempt": 1, "why": "abort"})
        self.assertEqual([h.attempt for h in trace_next_attempt([sample, other])], [2, 1])
        self.clean()

    def test_carriers_of_slime_are_continued(self):
        sample = Sample(index=0)
        sample.trace = {"version": 1, "trace_id": "abc", "events": [{"type": "event", "name": "x", "ts": 1.0}], "sample_id": 0, "group_id": None, "attempt": 2}
        trace_event(sample, "y")
        self.assertEqual(len(events(sample)), 2)
        self.assertEqual((events(sample)[1]["trace_id"], events(sample)[1]["attempt"]), ("abc", 2))


def math_module():
    import math

    return math


class TestBounds(Case):
    def test_pairs_are_kept_or_dropped_together(self):
        rt.configure(max_events=3)
        sample = Sample(index=0)
        with trace_span(sample, "a") as a:
            with trace_span(sample, "b"):
                trace_event(sample, "e")
                with trace_span(sample, "dropped") as dropped:
                    trace_event(sample, "dropped")
                    dropped.update(build_sglang_meta_trace_attrs({"pd_decode_forward_duration": 1.0, "pd_transfer_total_mb": 1}))
            a.update(build_sglang_meta_trace_attrs({"pd_decode_forward_duration": 1.0}))
        self.assertEqual(shape(sample), [("span_start", "a"), ("span_start", "b"), ("event", "e"), ("span_end", "b"), ("span_end", "a")])
        # The span (2), its event, its children (2 spans and an event: 5), the children of a (4).
        self.assertEqual(sample.trace["dropped_events"], 12)
        self.assertEqual(rt.stats()["dropped_events"], 12)
        self.clean()

    def test_threads(self):
        sample = Sample(index=0)
        bind_trace(sample)
        rt.configure(max_events=500)

        def work():
            for _ in range(200):
                trace_event(sample, "e")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((len(events(sample)), sample.trace["dropped_events"]), (500, 1100))
        self.clean()


class TestFunctions(Case):
    def test_targets_by_name_getter_guess_and_context(self):
        sample = Sample(index=0)

        @trace_function("by_name", target="sample")
        def by_name(args, sample=None, **kw):
            return inner(2)

        @trace_function("inner")
        def inner(n):
            return n

        self.assertEqual(by_name(None, sample), 2)
        self.assertEqual(by_name(None, sample=sample), 2)
        self.assertEqual(tree(sample), [("by_name", None), ("inner", "by_name")] * 2)

        @trace_function("by_getter", target_getter=lambda job: job["item"], attrs_getter=lambda job: {"n": job["n"]})
        def by_getter(job):
            return job["n"]

        self.assertEqual(by_getter({"item": [sample], "n": 5}), 5)
        self.assertEqual(events(sample)[-2]["attrs"], {"n": 5})

        class Args:  # anything may be set on it, yet it is no sample
            pass

        @trace_function("guessed")
        def guessed(args, batch):
            return args

        args = Args()
        self.assertIs(guessed(args, [sample]), args)
        self.assertFalse(hasattr(args, "trace"))
        self.assertEqual(tree(sample)[-1], ("guessed", None))
        self.assertEqual(inner(3), 3)  # no sample anywhere: not recorded
        n = len(events(sample))
        self.assertEqual(guessed(1, 2), 1)
        self.assertEqual(len(events(sample)), n)
        self.clean()

    def test_guessing_warns_once_per_function(self):
        logging.disable(logging.NOTSET)

        @trace_function("f")
        def f(sample):
            return g()

        @trace_function("g")
        def g():
            return 1

        with self.assertLogs("rollscope_trace", "WARNING") as logs:
            for _ in range(3):
                f(Sample())
        self.assertEqual(len(logs.output), 2)
        self.assertIn("guessed", logs.output[0])
        self.assertIn("span around it", logs.output[1])

    def test_wrong_use_does_not_reach_the_caller(self):
        def boom(*a, **k):
            raise RuntimeError("boom")

        sample = Sample()

        @trace_function("f", target="nobody")
        def f(sample):
            return 1

        @trace_function("g", target_getter=boom)
        def g(sample):
            return 2

        @trace_function("h", target="sample", attrs_getter=boom)
        def h(sample):
            return 3

        @trace_function("i", target="sample", attrs_getter=lambda sample: [1])
        def i(sample):
            return 4

        self.assertEqual([f(sample), g(sample), h(sample), i(sample)], [1, 2, 3, 4])
        self.assertEqual([e["name"] for e in events(sample)], ["h", "h", "i", "i"])
        self.assertEqual(rt.stats()["errors"], {"function_target": 2, "function_attrs": 2})
        with self.assertRaisesRegex(TypeError, "missing 1 required"):
            h()
        with self.assertRaisesRegex(TypeError, "unexpected keyword"):
            h(sample, other=1)

    def test_keeps_name_and_kind(self):
        @trace_function("f")
        async def f(a, b=1):
            "doc"

        import inspect

        self.assertEqual((f.__name__, f.__doc__), ("f", "doc"))
        self.assertTrue(inspect.iscoroutinefunction(f))

    def test_error_in_function(self):
        sample = Sample()

        @trace_function("f", target="sample")
        async def f(sample):
            raise ValueError("bad")

        with self.assertRaisesRegex(ValueError, "bad"):
            asyncio.run(f(sample))
        self.assertEqual(events(sample)[-1]["attrs"], {"error_type": "ValueError", "error_message": "bad"})

    def test_generator(self):
        sample = Sample(index=0)

        @trace_function("gen", target="sample")
        def gen(sample):
            with trace_span(sample, "inside"):
                got = yield 1
                trace_event(sample, "e%s" % got)
                try:
                    yield 2
                except KeyError:
                    yield 3
            return 4

        def outer():
            return (yield from gen(sample))

        g = outer()
        with trace_span(sample, "consumer"):
            self.assertEqual(next(g), 1)
            trace_event(sample, "consumed")
            self.assertEqual(g.send("x"), 2)
            self.assertEqual(g.throw(KeyError("k")), 3)
            with self.assertRaises(StopIteration) as stop:
                next(g)
            self.assertEqual(stop.exception.value, 4)
        self.assertEqual(tree(sample), [("consumer", None), ("gen", "consumer"), ("inside", "gen"), ("consumed", "consumer"), ("ex", "inside")])
        self.assertEqual([n for k, n in shape(sample) if k == "span_end"], ["inside", "gen", "consumer"])

        for leave, want in [(lambda g: g.close(), None), (lambda g: self.assertRaises(OSError, g.throw, OSError("o")), "OSError")]:
            sample = Sample(index=0)
            g = gen(sample)
            next(g)
            leave(g)
            self.assertEqual(shape(sample)[-1], ("span_end", "gen"))
            self.assertEqual(events(sample)[-1].get("attrs", {}).get("error_type"), want)
            self.assertEqual(rt._stack.get(), ())
        self.clean()

    def test_async_generator(self):
        sample = Sample(index=0)
        seen = []

        @trace_function("agen", target="sample")
        async def agen(sample):
            try:
                with trace_span(sample, "inside"):
                    for i in range(3):
                        await asyncio.sleep(0)
                        trace_event(sample, "made")
                        yield i
            finally:
                seen.append("closed")

        async def run():
            with trace_span(sample, "consumer"):
                async for i in agen(sample):
                    trace_event(sample, "used")
                    seen.append(i)
            g = agen(sample)
            await g.__anext__()
            await g.aclose()
            with self.assertRaises(OSError):
                g = agen(sample)
                await g.__anext__()
                await g.athrow(OSError("o"))

        asyncio.run(run())
        self.assertEqual(seen, [0, 1, 2, "closed", "closed", "closed"])
        self.assertEqual(tree(sample)[:5], [("consumer", None), ("agen", "consumer"), ("inside", "agen"), ("made", "inside"), ("used", "consumer")])
        ends = [e for e in events(sample) if e["type"] == "span_end" and e["name"] == "agen"]
        self.assertEqual([e.get("attrs", {}).get("error_type") for e in ends], [None, None, "OSError"])
        self.clean()


class TestProcesses(Case):
    def test_there_and_back(self):
        sample = Sample(group_index=2, index=1)
        trace_next_attempt(sample)
        with trace_span(sample, "rollout") as span:
            payload = json.loads(json.dumps(export_trace(sample)))
            self.assertEqual(
                payload,
                {
                    "version": 1, "trace_id": sample.trace["trace_id"], "sample_id": 1, "group_id": 2, "attempt": 1,
                    "parent_span_id": span._records[0][1],
                },
            )  # fmt: skip

            def elsewhere(payload):
                handle = import_trace(payload)
                with trace_span(handle, "reward"):
                    with trace_span(handle, "sandbox"):
                        inner = export_trace(handle)
                    trace_event(handle, "verdict")
                return handle.carrier, inner

            carrier, inner = contextvars.Context().run(elsewhere, payload)
            self.assertEqual(merge_trace(sample, json.loads(json.dumps(carrier))), 5)
        self.assertEqual(tree(sample), [("attempt_start", None), ("rollout", None), ("reward", "rollout"), ("sandbox", "reward"), ("verdict", "reward")])
        self.assertEqual(inner["parent_span_id"], [e["span_id"] for e in events(sample) if e["name"] == "sandbox"][0])
        self.assertEqual({e["attempt"] for e in events(sample)}, {1})
        self.clean()

    def test_a_handles_parent_beats_an_unrelated_span(self):
        sample = Sample(index=0)
        with trace_span(sample, "a"):
            handle = import_trace(export_trace(sample), sample.trace)
        with trace_span(sample, "b"):
            with trace_span(handle, "c"):
                trace_event(sample, "d")
        self.assertEqual(tree(sample), [("a", None), ("b", None), ("c", "a"), ("d", "c")])

    def test_merge_keeps_pairs(self):
        rt.configure(max_events=4)
        remote = Sample(index=0)
        for name in ("a", "b"):
            with trace_span(remote, name):
                pass
        remote.trace["dropped_events"] = 3
        sample = Sample(index=0)
        for _ in range(3):
            trace_event(sample, "e")
        self.assertEqual(merge_trace(sample, remote.trace), 2)
        self.assertEqual(shape(sample)[3:], [("span_start", "a"), ("span_end", "a")])
        self.assertEqual(sample.trace["dropped_events"], 5)
        self.assertEqual(merge_trace(sample, bind_trace(sample)), 0)




if __name__ == "__main__":
    unittest.main()
