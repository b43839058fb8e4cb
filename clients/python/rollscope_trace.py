"""Execution traces of RL rollout samples, and a sender that posts them to Rollscope.

One file, standard library only, Python 3.8 or later: copy it beside your rollout code. Its entry
points are :func:`trace_span` and :class:`Sender`. Traces are carriers, plain dicts that live in
``sample.trace``, in the format of slime; FORMAT.md in Rollscope's ``trace`` package specifies both
the carrier and what a Sender posts. Nothing in here raises into the code that is traced: what goes
wrong is logged once per kind and counted in :func:`stats`.
"""

import atexit
import collections
import contextvars
import functools
import gzip
import http.client
import inspect
import json
import logging
import math
import os
import random
import ssl
import threading
import time
import urllib.parse
import uuid
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

__all__ = [
    "Sender", "TraceHandle", "bind_trace", "bind_trace_carrier", "build_sglang_meta_trace_attrs", "configure",
    "export_trace", "import_trace", "merge_trace", "stats", "trace_event", "trace_function",
    "trace_next_attempt", "trace_span",
]  # fmt: skip

TRACE_VERSION = 1
TRACE_CHILDREN_KEY = "_trace_children"
DEFAULT_MAX_EVENTS = 100_000
MAX_ERROR_MESSAGE = 4096  # characters

logger = logging.getLogger("rollscope_trace")


# ---- failures, limits ----------------------------------------------------------------------------


class _State:
    """What the module remembers: switches, counters, and what was already said in the log."""

    def __init__(self) -> None:
        # Reentrant, since a signal handler may trace while its thread is in here.
        self.lock = threading.RLock()
        self.enabled = True
        self.max_events = DEFAULT_MAX_EVENTS
        self.events = 0
        self.dropped = 0
        self.errors: Dict[str, int] = {}
        self.said: set = set()

    def renew_lock(self) -> None:
        self.lock = threading.RLock()


_state = _State()
if hasattr(os, "register_at_fork"):  # a child must not wait for a lock that a thread of its parent held
    os.register_at_fork(after_in_child=_state.renew_lock)


def configure(*, enabled: Optional[bool] = None, max_events: Optional[int] = None) -> None:
    """Switches tracing off or on, and bounds the events that one carrier takes.

    Past ``max_events`` new spans and events of a carrier are dropped and counted in its
    ``dropped_events``; spans that are open may still end.
    """
    if enabled is not None:
        _state.enabled = bool(enabled)
    if max_events is not None:
        _state.max_events = max(0, int(max_events))


def stats() -> Dict[str, Any]:
    """Counts since the start: events recorded, events dropped, failures by kind."""
    with _state.lock:
        return {"events": _state.events, "dropped_events": _state.dropped, "errors": dict(_state.errors)}


def _failed(kind: str, exc: BaseException) -> None:
    try:
        with _state.lock:
            _state.errors[kind] = _state.errors.get(kind, 0) + 1
            first = _state.errors[kind] == 1
        if first:
            logger.warning("tracing: %s failed: %r; more of this kind are only counted", kind, exc, exc_info=exc)
    except Exception:  # a repr or a log handler that fails
        pass


def _say_once(key: Any, message: str, *args: Any) -> None:
    with _state.lock:
        if key in _state.said:
            return
        _state.said.add(key)
    logger.warning(message, *args)


# ---- carriers and handles ------------------------------------------------------------------------

Id = Union[int, str, None]


@dataclass
class TraceHandle:
    """A carrier with the place in it where new spans hang."""

    trace_id: str
    carrier: Dict[str, Any]
    sample_id: Id = None
    group_id: Id = None
    attempt: int = 0
    parent_span_id: Optional[str] = None


def _noop_handle(parent_span_id: Optional[str] = None) -> TraceHandle:
    carrier = {"version": TRACE_VERSION, "trace_id": "", "events": [], "sample_id": None, "group_id": None, "attempt": 0}
    return TraceHandle("", carrier, parent_span_id=parent_span_id)


def _ensure_carrier(carrier: Any, trace_id: Any, sample_id: Id, group_id: Id, attempt: int = 0) -> Dict[str, Any]:
    if carrier is None:
        carrier = {}
    if not isinstance(carrier, dict):
        raise TypeError("a carrier is a dict, not " + type(carrier).__name__)
    events = carrier.get("events")
    if "events" in carrier and not isinstance(events, list):
        raise TypeError("a carrier's events are a list, not " + type(events).__name__)
    number = int(carrier.get("attempt", attempt))
    carrier.setdefault("version", TRACE_VERSION)
    carrier.setdefault("trace_id", trace_id or uuid.uuid4().hex)
    carrier.setdefault("events", [])
    for key, value in (("sample_id", sample_id), ("group_id", group_id)):
        if value is not None:
            carrier[key] = value
        else:
            carrier.setdefault(key, None)
    carrier["attempt"] = number
    return carrier


def _handle_of(carrier: Dict[str, Any], parent_span_id: Optional[str] = None) -> TraceHandle:
    return TraceHandle(
        carrier["trace_id"], carrier, carrier.get("sample_id"), carrier.get("group_id"), carrier["attempt"], parent_span_id
    )


def _get(sample: Any, key: str) -> Any:
    return sample.get(key) if isinstance(sample, dict) else getattr(sample, key, None)


def _is_carrier(value: Any) -> bool:
    return isinstance(value, dict) and "trace_id" in value and isinstance(value.get("events"), list)


def _bind(sample: Any) -> TraceHandle:
    if _is_carrier(sample):
        return _handle_of(_ensure_carrier(sample, None, None, None))
    index = _get(sample, "index")
    if callable(index):
        index = None
    carrier = _ensure_carrier(_get(sample, "trace"), None, index, _get(sample, "group_index"))
    if isinstance(sample, dict):
        sample["trace"] = carrier
    else:
        sample.trace = carrier
    return _handle_of(carrier)


def bind_trace(sample: Any) -> TraceHandle:
    """Gives a sample its carrier (``sample.trace``) if it has none, and returns a handle to it.

    A sample is any object whose ``trace`` can be set (slime's Sample; ``index`` and ``group_index``
    become the ids) or a dict with one of the keys ``trace``, ``index``, ``group_index``.
    """
    try:
        handles = _coerce(sample)
        if len(handles) != 1:
            raise TypeError("not one sample: " + type(sample).__name__)
        return handles[0]
    except Exception as exc:
        _failed("bind", exc)
        return _noop_handle()


def bind_trace_carrier(
    carrier: Optional[Dict[str, Any]],
    *,
    trace_id: Optional[str] = None,
    sample_id: Id = None,
    group_id: Id = None,
    attempt: int = 0,
    parent_span_id: Optional[str] = None,
) -> TraceHandle:
    """Completes a carrier (None begins a new one) and returns a handle to it."""
    try:
        return _handle_of(_ensure_carrier(carrier, trace_id, sample_id, group_id, attempt), parent_span_id)
    except Exception as exc:
        _failed("bind_carrier", exc)
        return _noop_handle(parent_span_id)


def export_trace(target: Any) -> Dict[str, Any]:
    """What another process needs to add to this trace: a small JSON-able dict for :func:`import_trace`."""
    try:
        handle = _coerce(target)[0]
        return {
            "version": TRACE_VERSION,
            "trace_id": handle.trace_id,
            "sample_id": handle.sample_id,
            "group_id": handle.group_id,
            "attempt": int(handle.carrier.get("attempt", handle.attempt)),
            "parent_span_id": _parent(handle, _stack.get())[0],
        }
    except Exception as exc:
        _failed("export", exc)
        return {
            "version": TRACE_VERSION, "trace_id": "", "sample_id": None, "group_id": None, "attempt": 0, "parent_span_id": None,
        }  # fmt: skip


def import_trace(payload: Dict[str, Any], carrier: Optional[Dict[str, Any]] = None) -> TraceHandle:
    """A handle of the trace that another process exported. Spans on it hang below the exporter's span.

    They are collected in ``handle.carrier``: send that back and give it to :func:`merge_trace`.
    """
    try:
        return _handle_of(
            _ensure_carrier(
                carrier, payload.get("trace_id"), payload.get("sample_id"), payload.get("group_id"), int(payload.get("attempt") or 0)
            ),
            payload.get("parent_span_id"),
        )
    except Exception as exc:
        _failed("import", exc)
        return _noop_handle()


def merge_trace(target: Any, carrier: Any) -> int:
    """Adds the events of a carrier that came back from another process to the sample's own; returns how many.

    Starts and ends are kept or dropped in pairs when the sample's carrier is full.
    """
    try:
        source = carrier.carrier if isinstance(carrier, TraceHandle) else carrier
        if not isinstance(source, dict) or not isinstance(source.get("events"), list):
            raise TypeError("no carrier: " + type(source).__name__)
        added = 0
        for handle in _coerce(target):
            if handle.carrier is source:
                continue
            dropped = set()
            for event in list(source["events"]):
                span = event.get("span_id") if isinstance(event, dict) else None
                ends = isinstance(event, dict) and event.get("type") == "span_end"
                if ends and span in dropped:
                    _drop(handle.carrier)
                elif _append(handle.carrier, event, always=ends):
                    added += 1
                elif span is not None:
                    dropped.add(span)
            if source.get("dropped_events"):
                _drop(handle.carrier, int(source["dropped_events"]), again=True)
        return added
    except Exception as exc:
        _failed("merge", exc)
        return 0


def _drop(carrier: Dict[str, Any], n: int = 1, again: bool = False) -> None:
    with _state.lock:
        carrier["dropped_events"] = int(carrier.get("dropped_events") or 0) + n
        if not again:
            _state.dropped += n


def _append(carrier: Dict[str, Any], event: Any, always: bool = False) -> bool:
    with _state.lock:
        events = carrier["events"]
        if not always and len(events) >= _state.max_events:
            _drop(carrier)
            return False
        events.append(event)
        _state.events += 1
        return True


def _event(
    handle: TraceHandle,
    kind: str,
    name: str,
    ts: float,
    span_id: Optional[str] = None,
    parent_span_id: Optional[str] = None,
    attrs: Optional[Dict[str, Any]] = None,
) -> Dict[str, Any]:
    event: Dict[str, Any] = {
        "type": kind,
        "name": name,
        "ts": ts,
        "trace_id": handle.trace_id,
        "sample_id": handle.sample_id,
        "group_id": handle.group_id,
        "attempt": int(handle.carrier.get("attempt", handle.attempt)),
    }
    if span_id is not None:
        event["span_id"] = span_id
    if parent_span_id is not None:
        event["parent_span_id"] = parent_span_id
    if attrs:
        event["attrs"] = dict(attrs)
    return event


# ---- targets -------------------------------------------------------------------------------------

_PLAIN = (str, bytes, bytearray, int, float, complex, bool, set, frozenset, type)


def _unbox(value: Any) -> Any:
    """The sample or samples of a SampleBox; anything else as it is."""
    if type(value).__name__ == "SampleBox" and hasattr(value, "prompt_sample") and hasattr(value, "generation"):
        return value.generation or value.prompt_sample
    return value


def _is_target(value: Any, explicit: bool) -> bool:
    """Whether spans can be recorded on a value. Inference is stricter: most objects accept any attribute."""
    value = _unbox(value)
    if value is None or isinstance(value, _PLAIN):
        return False
    if isinstance(value, TraceHandle):
        return True
    if isinstance(value, (list, tuple)):
        if explicit:
            return any(_is_target(v, True) for v in value)
        return bool(value) and all(_is_target(v, False) for v in value)
    if isinstance(value, dict):
        if _is_carrier(value):
            return True
        if "trace" in value and not isinstance(value["trace"], (dict, type(None))):
            return False
        return ("trace" in value or "group_index" in value) or (explicit and "index" in value)
    trace = getattr(value, "trace", None)
    if trace is not None and not isinstance(trace, dict):
        return False  # torch.Tensor.trace and the like
    if hasattr(value, "group_index") or isinstance(trace, dict):
        return True
    if not explicit:
        return type(value).__name__ == "Sample"
    return not callable(value) and not inspect.ismodule(value)


def _coerce(target: Any) -> List[TraceHandle]:
    target = _unbox(target)
    if isinstance(target, TraceHandle):
        return [target]
    if isinstance(target, (list, tuple)):
        return [handle for item in target for handle in _coerce(item)]
    if _is_target(target, True):
        return [_bind(target)]
    return []


def _check_empty(target: Any) -> None:
    """No samples are nothing to record; anything else that gave no handle is somebody's mistake."""
    if target is not None and not (isinstance(target, (list, tuple)) and not target):
        raise TypeError("cannot be traced: " + type(target).__name__)


# ---- spans ---------------------------------------------------------------------------------------

# The open spans of this context, outermost first.
_stack: "contextvars.ContextVar[Tuple[trace_span, ...]]" = contextvars.ContextVar("rollscope_trace_stack", default=())


class _Clock:
    """Wall time that is read once and then follows a monotonic clock.

    The spans and events below one outermost span share a clock, so they never end before they begin
    and stay inside each other when the wall clock is set.
    """

    __slots__ = ("wall", "mono")

    def __init__(self) -> None:
        self.wall = time.time()
        self.mono = time.perf_counter()

    def now(self) -> float:
        return self.wall + (time.perf_counter() - self.mono)


def _parent(handle: TraceHandle, stack: "Tuple[trace_span, ...]") -> Tuple[Optional[str], Optional[str]]:
    """The span that a new event of a handle hangs below, and the imported span that it all hangs below."""
    base = handle.parent_span_id
    for span in reversed(stack):
        for other, span_id, other_base in reversed(span._records):
            if other.trace_id == handle.trace_id and span_id is not None and (base is None or base == other_base):
                return span_id, other_base
    return base, base


class trace_span:
    """A context manager (``with`` and ``async with``) that records a span on one or more samples.

    It yields itself: ``set(key, value)`` and ``update(attrs)`` add attributes to the span's end, also
    after it. The span ends whatever leaves the block: exceptions, cancellation and KeyboardInterrupt
    put ``error_type`` and ``error_message`` on it (unless ``record_error=False``) and go on; the
    GeneratorExit of a consumer that stopped early is no error. A target that cannot be traced gives
    a span on which everything is accepted and nothing recorded.
    """

    __slots__ = ("target", "handles", "closed", "start_ts", "end_attrs", "_name", "_attrs", "_record_error", "_records", "_clock", "_ends")

    def __init__(self, target: Any, name: str, *, attrs: Optional[Dict[str, Any]] = None, record_error: bool = True) -> None:
        self.target = target
        self.handles: List[TraceHandle] = []
        self.closed = False
        self.start_ts = 0.0
        self.end_attrs: Dict[str, Any] = {}
        self._name = name
        self._attrs = attrs
        self._record_error = record_error
        self._records: List[Tuple[TraceHandle, Optional[str], Optional[str]]] = []  # handle, span id (None: dropped), imported parent
        self._clock: Optional[_Clock] = None
        self._ends: List[Dict[str, Any]] = []

    def __enter__(self) -> "trace_span":
        self._start()
        if self._records:
            _stack.set(_stack.get() + (self,))
        return self

    def __exit__(self, exc_type: Any, exc: Any, tb: Any) -> bool:
        self._end(exc)
        try:
            # Only what is ours is taken away: the block may be left in another context than it was entered in.
            stack = _stack.get()
            if stack and stack[-1] is self:
                _stack.set(stack[:-1])
            elif self in stack:
                _stack.set(tuple(span for span in stack if span is not self))
        except Exception as failure:
            _failed("span_leave", failure)
        return False

    async def __aenter__(self) -> "trace_span":
        return self.__enter__()

    async def __aexit__(self, exc_type: Any, exc: Any, tb: Any) -> bool:
        return self.__exit__(exc_type, exc, tb)

    def _start(self) -> None:
        if not _state.enabled:
            return
        try:
            stack = _stack.get()
            self.handles = _coerce(self.target)
            if len(self.handles) == 1:
                self.target = self.handles[0]
            elif self.handles:
                self.target = self.handles
            else:
                _check_empty(self.target)
                return
            self._clock = (stack[-1]._clock if stack else None) or _Clock()
            self.start_ts = self._clock.now()
            for handle in self.handles:
                span_id: Optional[str] = uuid.uuid4().hex
                parent, base = _parent(handle, stack)
                if not _append(handle.carrier, _event(handle, "span_start", self._name, self.start_ts, span_id, parent, self._attrs)):
                    span_id = None
                self._records.append((handle, span_id, base))
        except Exception as exc:
            _failed("span", exc)

    def _end(self, exc: Optional[BaseException]) -> None:
        if self.closed:
            return
        self.closed = True
        if not self._records or self._clock is None:
            return
        try:
            attrs = dict(self.end_attrs)
            if exc is not None and self._record_error and not isinstance(exc, GeneratorExit):
                attrs["error_type"] = type(exc).__name__
                try:
                    text = str(exc)
                except Exception:
                    text = "(its text cannot be read)"
                attrs["error_message"] = text if len(text) <= MAX_ERROR_MESSAGE else text[:MAX_ERROR_MESSAGE] + "..."
            ts = self._clock.now()
            for handle, span_id, _ in self._records:
                if span_id is None:
                    _drop(handle.carrier)
                    continue
                event = _event(handle, "span_end", self._name, ts, span_id, None, attrs)
                _append(handle.carrier, event, always=True)
                self._ends.append(event)
        except Exception as failure:
            _failed("span_end", failure)

    def set(self, key: str, value: Any) -> "trace_span":
        """Sets one attribute of the span's end."""
        return self.update({key: value})

    def update(self, attrs: Optional[Dict[str, Any]]) -> "trace_span":
        """Adds attributes to the span's end; spans and events under ``_trace_children`` become its children."""
        try:
            if attrs:
                plain = dict(attrs)
                children = plain.pop(TRACE_CHILDREN_KEY, None)
                self.end_attrs.update(plain)
                if plain:
                    for event in self._ends:
                        event.setdefault("attrs", {}).update(plain)
                if children and self._records:
                    _append_children([(h, s) for h, s, _ in self._records], children, self.start_ts)
        except Exception as exc:
            _failed("update", exc)
        return self

    set_attr = set
    update_attrs = update


def _append_children(parents: List[Tuple[TraceHandle, Optional[str]]], children: Any, start: float) -> None:
    if isinstance(children, dict):
        children = [children]
    if not isinstance(children, (list, tuple)):
        raise TypeError("children are a list, not " + type(children).__name__)
    for child in children:
        try:
            kind, name = child["type"], child["name"]
            begin = start + float(child["start_offset"])
            end = begin if kind == "event" else start + float(child["end_offset"])
            if kind not in ("span", "event") or not name or not math.isfinite(end - begin) or end < begin:
                raise ValueError("no span or event with finite offsets: %.200r" % (child,))
            attrs = child.get("attrs") if isinstance(child.get("attrs"), dict) else None
        except Exception as exc:
            _failed("child", exc)
            continue
        if kind == "event":
            for handle, parent in parents:
                if parent is None:
                    _drop(handle.carrier)
                else:
                    _append(handle.carrier, _event(handle, "event", name, begin, None, parent, attrs))
            continue
        records: List[Tuple[TraceHandle, Optional[str]]] = []
        for handle, parent in parents:
            span_id: Optional[str] = uuid.uuid4().hex
            if parent is None:
                _drop(handle.carrier)
                span_id = None
            elif not _append(handle.carrier, _event(handle, "span_start", name, begin, span_id, parent)):
                span_id = None
            records.append((handle, span_id))
        if child.get("children"):
            try:
                _append_children(records, child["children"], begin)
            except Exception as exc:
                _failed("child", exc)
        for handle, span_id in records:
            if span_id is None:
                _drop(handle.carrier)
            else:
                _append(handle.carrier, _event(handle, "span_end", name, end, span_id, None, attrs), always=True)


def trace_event(target: Any, name: str, *, attrs: Optional[Dict[str, Any]] = None) -> None:
    """Records an instant event on one or more samples."""
    if not _state.enabled:
        return
    try:
        stack = _stack.get()
        ts = ((stack[-1]._clock if stack else None) or _Clock()).now()
        handles = _coerce(target)
        if not handles:
            _check_empty(target)
        for handle in handles:
            _append(handle.carrier, _event(handle, "event", name, ts, None, _parent(handle, stack)[0], attrs))
    except Exception as exc:
        _failed("event", exc)


def trace_next_attempt(target: Any, *, attrs: Optional[Dict[str, Any]] = None) -> Any:
    """Begins the next attempt of one or more samples: later events carry its number.

    Returns the handle, the handles of several, or the target itself when it cannot be traced.
    """
    if not _state.enabled:
        return target
    try:
        handles = _coerce(target)
        for handle in handles:
            with _state.lock:
                number = int(handle.carrier.get("attempt", 0)) + 1
                handle.carrier["attempt"] = number
            handle.attempt = number
            trace_event(handle, "attempt_start", attrs={"attempt": number, **(attrs or {})})
        if not handles:
            _check_empty(target)
            return target
        return handles[0] if len(handles) == 1 else handles
    except Exception as exc:
        _failed("next_attempt", exc)
        return target


# ---- functions -----------------------------------------------------------------------------------


def trace_function(
    name: str,
    *,
    target: Optional[str] = None,
    target_getter: Optional[Callable[..., Any]] = None,
    attrs_getter: Optional[Callable[..., Optional[Dict[str, Any]]]] = None,
    record_error: bool = True,
) -> Callable[[Callable], Callable]:
    """A decorator that makes a whole call one span: functions, coroutine functions, generators of both kinds.

    ``target`` names the argument that is the sample; ``target_getter`` gets the call's arguments and
    returns it. With neither, the first argument that looks like a sample is taken (a warning, once
    per function), else the sample of the span around the call. ``attrs_getter`` gets the call's
    arguments and returns the attributes of the span's start. A generator's span lasts from its first
    step to its end, and is the parent only of what the generator itself does.
    """

    def decorator(fn: Callable) -> Callable:
        try:
            signature: Optional[inspect.Signature] = inspect.signature(fn)
        except Exception:
            signature = None
        label = "%s.%s" % (getattr(fn, "__module__", None), getattr(fn, "__qualname__", None) or repr(fn))

        def span_of(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[trace_span]:
            if not _state.enabled:
                return None
            try:
                found = _function_target(label, signature, args, kwargs, target, target_getter)
                if found is None:
                    return None
            except Exception as exc:
                _failed("function_target", exc)
                return None
            attrs = None
            if attrs_getter is not None:
                try:
                    attrs = attrs_getter(*args, **kwargs)
                    if attrs is not None and not isinstance(attrs, dict):
                        raise TypeError("attrs_getter of %s gave no dict but %s" % (label, type(attrs).__name__))
                except Exception as exc:
                    _failed("function_attrs", exc)
                    attrs = None
            return trace_span(found, name, attrs=attrs, record_error=record_error)

        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                span = span_of(args, kwargs)
                if span is None:
                    return await fn(*args, **kwargs)
                with span:
                    return await fn(*args, **kwargs)

            return coroutine

        if inspect.isasyncgenfunction(fn):

            @functools.wraps(fn)
            async def async_generator(*args: Any, **kwargs: Any) -> Any:
                span = span_of(args, kwargs)
                inner = fn(*args, **kwargs)
                step, given, error = inner.asend, None, None
                frames = _Frames(span)
                try:
                    while True:
                        frames.enter()
                        try:
                            item = await step(given)
                        except StopAsyncIteration:
                            return
                        finally:
                            frames.leave()
                        try:
                            given, step = (yield item), inner.asend
                        except GeneratorExit:
                            await inner.aclose()
                            raise
                        except BaseException as exc:
                            given, step = exc, inner.athrow
                except BaseException as exc:
                    error = exc
                    raise
                finally:
                    frames.end(error)

            return async_generator

        if inspect.isgeneratorfunction(fn):

            @functools.wraps(fn)
            def generator(*args: Any, **kwargs: Any) -> Any:
                span = span_of(args, kwargs)
                inner = fn(*args, **kwargs)
                step, given, error = inner.send, None, None
                frames = _Frames(span)
                try:
                    while True:
                        frames.enter()
                        try:
                            item = step(given)
                        except StopIteration as stop:
                            return stop.value
                        finally:
                            frames.leave()
                        try:
                            given, step = (yield item), inner.send
                        except GeneratorExit:
                            inner.close()
                            raise
                        except BaseException as exc:
                            given, step = exc, inner.throw
                except BaseException as exc:
                    error = exc
                    raise
                finally:
                    frames.end(error)

            return generator

        @functools.wraps(fn)
        def function(*args: Any, **kwargs: Any) -> Any:
            span = span_of(args, kwargs)
            if span is None:
                return fn(*args, **kwargs)
            with span:
                return fn(*args, **kwargs)

        return function

    return decorator


class _Frames:
    """Puts a generator's own open spans in place while it runs, and the consumer's back when it yields."""

    __slots__ = ("span", "inner", "outer")

    def __init__(self, span: Optional[trace_span]) -> None:
        self.span = span
        if span is not None:
            span._start()
        self.outer: Tuple[trace_span, ...] = ()
        self.inner = _stack.get() + ((span,) if span is not None and span._records else ())

    def enter(self) -> None:
        self.outer = _stack.get()
        _stack.set(self.inner)

    def leave(self) -> None:
        self.inner = _stack.get()
        _stack.set(self.outer)

    def end(self, error: Optional[BaseException]) -> None:
        if self.span is not None:
            self.span._end(error)


def _function_target(
    label: str,
    signature: Optional[inspect.Signature],
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    target: Optional[str],
    target_getter: Optional[Callable[..., Any]],
) -> Any:
    arguments: Dict[str, Any] = dict(kwargs)
    if signature is not None:
        try:
            arguments = dict(signature.bind_partial(*args, **kwargs).arguments)
        except TypeError:
            pass  # the call itself will say what is wrong with it
    if target is not None:
        found = arguments.get(target, kwargs.get(target))
        if _is_target(found, True):
            return found
        _say_once(
            ("target", label), "tracing: argument %r of %s is missing or cannot be traced (%s); calls like this one are not recorded",
            target, label, type(found).__name__,
        )  # fmt: skip
        raise TypeError("argument %r of %s cannot be traced" % (target, label))
    if target_getter is not None:
        found = target_getter(*args, **kwargs)
        if found is not None and not _is_target(found, True):
            raise TypeError("target_getter of %s gave what cannot be traced: %s" % (label, type(found).__name__))
        return found
    for value in arguments.values() if arguments else args:
        try:
            looks = _is_target(value, False)
        except Exception:  # an argument that minds being looked at is no sample
            continue
        if looks:
            _say_once(
                ("inferred", label), "tracing: the sample of %s was guessed from its arguments; name it with target=... or target_getter=...", label
            )
            return value
    stack = _stack.get()
    if stack:
        _say_once(("ambient", label), "tracing: the sample of %s is that of the span around it; name it with target=... or target_getter=...", label)
        return stack[-1].target
    return None


# ---- SGLang --------------------------------------------------------------------------------------

SGLANG_TRACE_META_KEYS = ("prompt_tokens", "completion_tokens", "cached_tokens", "queue_time", "e2e_latency", "decode_throughput")
SGLANG_PD_SUMMARY_KEYS = ("pd_transfer_speed_gb_s", "pd_transfer_total_mb", "pd_prefill_retry_count")
# Phase, then its parts in order; a part is pd_<phase>_<part>_duration in meta_info, seconds.
_PD_PHASES = (
    ("prefill", ("bootstrap_queue", "bootstrap", "alloc_wait", "forward", "transfer_queue")),
    ("decode", ("prealloc", "bootstrap", "alloc_wait", "transfer", "forward")),
)
# Names that SGLang used before.
_PD_OLD = {"pd_prefill_bootstrap_duration": "pd_bootstrap_duration", "pd_prefill_alloc_wait_duration": "pd_alloc_waiting_duration"}


def build_sglang_meta_trace_attrs(meta: Dict[str, Any]) -> Dict[str, Any]:
    """The end attributes of a generation span out of SGLang's ``meta_info``, for ``span.update``.

    With prefill-decode disaggregation the phases become child spans: ``sglang_pd_prefill`` and
    ``sglang_pd_decode``, each with its parts laid end to end, and an event ``sglang_pd_summary``.
    Parts that are missing, not positive or not finite are left out.
    """
    attrs: Dict[str, Any] = {}
    try:
        for key in SGLANG_TRACE_META_KEYS:
            if meta.get(key) is not None:
                attrs[key] = meta[key]
        reason = meta.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") is not None:
            reason = reason["type"]
        if reason is not None:
            attrs["finish_reason"] = reason
        if meta.get("id") is not None:
            attrs["sglang_request_id"] = meta["id"]
        children = _pd_children(meta)
        if children:
            attrs[TRACE_CHILDREN_KEY] = children
    except Exception as exc:
        _failed("sglang_meta", exc)
    return attrs


def _pd_children(meta: Dict[str, Any]) -> List[Dict[str, Any]]:
    children: List[Dict[str, Any]] = []
    start = 0.0
    for phase, parts in _PD_PHASES:
        inside: List[Dict[str, Any]] = []
        at = 0.0
        for part in parts:
            key = "pd_%s_%s_duration" % (phase, part)
            value = meta.get(key)
            if value is None:
                value = meta.get(_PD_OLD.get(key, key))
            if value is None:
                continue
            try:
                seconds = float(value)
            except (TypeError, ValueError, OverflowError) as exc:
                _failed("sglang_meta", exc)
                continue
            if not 0.0 < seconds < math.inf:
                continue
            inside.append({
                "type": "span", "name": "sglang_pd_%s_%s" % (phase, part),
                "start_offset": at, "end_offset": at + seconds, "attrs": {key: value},
            })  # fmt: skip
            at += seconds
        if inside:
            children.append({
                "type": "span", "name": "sglang_pd_" + phase, "start_offset": start, "end_offset": start + at,
                "attrs": {"phase": phase, "duration_s": at}, "children": inside,
            })  # fmt: skip
            start += at
    summary = {key: meta[key] for key in SGLANG_PD_SUMMARY_KEYS if meta.get(key) is not None}
    if summary:
        children.append({"type": "event", "name": "sglang_pd_summary", "start_offset": start, "attrs": summary})
    return children


# ---- sending -------------------------------------------------------------------------------------

WIRE_VERSION = 1
ROLLOUTS_PATH = "/api/rollscope/v1/rollouts"
# Long lists that no page shows; Sender(include=...) sends them all the same.
HEAVY_FIELDS = frozenset((
    "tokens", "loss_mask", "rollout_log_probs", "teacher_log_probs", "rollout_top_p_token_ids", "rollout_top_p_token_offsets",
    "rollout_routed_experts", "multimodal_inputs", "multimodal_train_inputs",
))  # fmt: skip
_MAX_DEPTH = 100
_MAX_STR = 10_000  # characters of a value that has no JSON form
_SMALL_ARRAY = 1024  # elements up to which an array is sent as a list


def _foreign(value: Any) -> Any:
    """A JSON-able stand-in for a value that has no JSON form."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "value") and type(type(value)).__name__ in ("EnumMeta", "EnumType"):
        return value.value
    for method in ("to_dict", "_asdict"):
        if callable(getattr(value, method, None)) and not isinstance(value, type):
            return getattr(value, method)()
    if callable(getattr(value, "tolist", None)) and hasattr(value, "shape"):  # numpy and torch
        size = 1
        for n in value.shape:
            size *= int(n)
        if size <= _SMALL_ARRAY:
            return value.tolist()
    return str(value)[:_MAX_STR]


def _plain(value: Any, depth: int = 0) -> Any:
    """A copy that JSON can write: no NaN, no odd keys, no cycles."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= 4096 else hex(value)  # Python refuses to print longer ones
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value in (math.inf, -math.inf):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if depth > _MAX_DEPTH:
        return "(nested deeper than %d)" % _MAX_DEPTH
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth + 1) for item in value]
    try:
        return _plain(_foreign(value), depth + 1)
    except Exception as exc:
        return "(%s that cannot be read: %s)" % (type(value).__name__, type(exc).__name__)


def _encode(value: Any) -> bytes:
    try:
        text = json.dumps(value, default=_foreign, allow_nan=False, separators=(",", ":"))
    except Exception:  # NaN, a key that is no string, a cycle, a value that cannot be read
        text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def _fields(sample: Any) -> Dict[str, Any]:
    if isinstance(sample, dict):
        return dict(sample)
    if callable(getattr(sample, "to_dict", None)):
        return dict(sample.to_dict())
    if hasattr(sample, "__dict__"):
        return dict(vars(sample))
    raise TypeError("not a sample: " + type(sample).__name__)


def _flatten(samples: Any, dataset: Optional[str] = None) -> Iterable[Tuple[Any, Optional[str]]]:
    """Samples of a list, of nested lists, or of slime's evaluation result {dataset: {"samples": [...]}}."""
    if isinstance(samples, dict) and samples and all(isinstance(v, dict) and "samples" in v for v in samples.values()):
        for key, info in samples.items():
            for pair in _flatten(info["samples"], str(key)):
                yield pair
    elif isinstance(samples, (dict, str, bytes)) or not hasattr(samples, "__iter__"):
        yield samples, dataset
    else:
        for item in samples:
            for pair in _flatten(item, dataset):
                yield pair


class _Batch:
    __slots__ = ("header", "lines", "size")

    def __init__(self) -> None:
        self.header: Dict[str, Any] = {}
        self.lines: List[bytes] = []
        self.size = 0


class _Upload:
    __slots__ = ("id", "part", "lost")

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.part = 0
        self.lost = 0


class Sender:
    """Posts the samples of finished rollouts to ``rollscope serve`` from a thread of its own.

    ``url`` is where Rollscope listens (``http://host:9090``), ``run`` names the training run,
    ``token`` is a bearer token. ``batch`` bounds the samples of one request, ``max_batch_bytes`` its
    size before compression; ``max_queue`` and ``max_queue_bytes`` bound what waits: past them batches
    are dropped and counted. ``timeout`` is of one request, in seconds; a request that fails in a way
    that may pass is tried ``retries`` more times, ``backoff`` = (first, longest) seconds apart.
    ``include`` names fields out of HEAVY_FIELDS that are to be sent too, ``exclude`` others that are
    not. Samples are turned into JSON by the caller's thread, so they may change afterwards.
    No method raises; ``stats()`` says what was sent and what was not, and why.
    """

    def __init__(
        self,
        url: str,
        *,
        run: str,
        token: Optional[str] = None,
        batch: int = 64,
        max_batch_bytes: int = 8 << 20,
        max_sample_bytes: int = 48 << 20,
        max_queue: int = 256,
        max_queue_bytes: int = 256 << 20,
        timeout: float = 30.0,
        retries: int = 6,
        backoff: Tuple[float, float] = (0.5, 30.0),
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        ca_file: Optional[str] = None,
        exit_timeout: float = 5.0,
    ) -> None:
        self._run = run
        self._token = token
        self._batch = max(1, int(batch))
        self._max_batch_bytes = max_batch_bytes
        self._max_sample_bytes = max_sample_bytes
        self._max_queue = max(1, int(max_queue))
        self._max_queue_bytes = max_queue_bytes
        self._timeout = timeout
        self._retries = max(0, int(retries))
        self._backoff = backoff
        self._skip = (HEAVY_FIELDS - frozenset(include)) | frozenset(exclude)
        self._ca_file = ca_file
        self._connection: Optional[http.client.HTTPConnection] = None
        self._uploads: "collections.OrderedDict[Tuple[str, int], _Upload]" = collections.OrderedDict()
        self._counts = {"sent_batches": 0, "sent_samples": 0, "sent_bytes": 0, "retries": 0}
        self._dropped: Dict[str, int] = {}
        self._last_error: Optional[str] = None
        self._url: Optional[urllib.parse.SplitResult] = None
        self._reset()
        try:
            parts = urllib.parse.urlsplit(url if "//" in url else "http://" + url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("the url of a Sender is http://host:port, not %r" % url)
            parts.port  # raises when it is no number
            path = parts.path.rstrip("/")
            self._url = parts._replace(path=path if path.endswith(ROLLOUTS_PATH) else path + ROLLOUTS_PATH)
        except Exception as exc:
            self._last_error = str(exc)
            _failed("sender_url", exc)
        reference = weakref.ref(self)

        def at_exit() -> None:
            sender = reference()
            if sender is not None:
                sender.close(exit_timeout)

        self._at_exit = at_exit
        atexit.register(at_exit)

    def _reset(self) -> None:
        """A new queue; the thread starts with the first batch. A forked child begins anew here."""
        self._changed = threading.Condition(threading.RLock())
        self._queue: "collections.deque[_Batch]" = collections.deque()
        self._queued_bytes = 0
        self._busy = 0
        self._closed = False
        self._abandon = False
        self._thread: Optional[threading.Thread] = None
        self._pid = os.getpid()  # last: who sees it uses what is above

    def _forked(self) -> None:
        """Begins anew in a forked child, once: what the parent's threads held is held for ever here."""
        if os.getpid() == self._pid:
            return
        with _state.lock:
            if os.getpid() != self._pid:
                self._uploads.clear()
                self._disconnect()  # closes this process's descriptor, not the parent's connection
                self._reset()

    def send_samples(self, samples: Any, rollout_id: int, evaluation: bool = False, *, final: bool = True) -> int:
        """Queues the samples of a rollout; returns how many were taken.

        ``samples`` is a list (nested ones are flattened), an iterator, or slime's evaluation result
        {dataset: {"samples": [...]}}. ``final=False`` says that more of the same rollout will follow.
        """
        taken = 0
        try:
            self._forked()
            kind = "eval" if evaluation else "train"
            key = (kind, int(rollout_id))
            with self._changed:
                upload = self._uploads.pop(key, None) or _Upload()
                if not final:
                    self._uploads[key] = upload
                    while len(self._uploads) > 64:  # rollouts that never became final
                        self._uploads.popitem(last=False)
            batch = _Batch()
            for sample, dataset in _flatten(samples):
                line = self._line(sample, dataset, upload)
                if line is None:
                    continue
                if batch.lines and (len(batch.lines) >= self._batch or batch.size + len(line) > self._max_batch_bytes):
                    taken += self._enqueue(batch, key, upload, False)
                    batch = _Batch()
                batch.lines.append(line)
                batch.size += len(line) + 1
            if batch.lines or final:
                taken += self._enqueue(batch, key, upload, final)
        except Exception as exc:
            _failed("send", exc)
        return taken

    def _line(self, sample: Any, dataset: Optional[str], upload: _Upload) -> Optional[bytes]:
        reason = "encode"
        try:
            fields = _fields(sample)
            if dataset is not None:
                fields.setdefault("dataset", dataset)
            # What is computed from fields that are left out.
            for name, key, count in (("token_count", "tokens", len), ("effective_response_length", "loss_mask", sum)):
                if key in self._skip and fields.get(key) is not None and name not in fields:
                    fields[name] = int(count(fields[key]))
            line = _encode({key: value for key, value in fields.items() if key not in self._skip})
            if len(line) <= self._max_sample_bytes:
                return line
            reason = "too_large"
        except Exception as exc:
            _failed("send_encode", exc)
        with self._changed:
            self._drop(reason, 1)
            upload.lost += 1
        return None

    def _drop(self, reason: str, samples: int) -> None:
        if samples:
            if reason not in self._dropped:
                logger.warning("tracing: %d samples were not sent (%s; last error: %s); more are only counted", samples, reason, self._last_error)
            self._dropped[reason] = self._dropped.get(reason, 0) + samples

    def _enqueue(self, batch: _Batch, key: Tuple[str, int], upload: _Upload, final: bool) -> int:
        with self._changed:
            part = upload.part
            upload.part += 1
            reason = None
            if self._closed:
                reason = "closed"
            elif self._url is None:
                reason = "bad_url"
            elif len(self._queue) >= self._max_queue or (self._queue and self._queued_bytes + batch.size > self._max_queue_bytes):
                reason = "queue_full"
            if reason is not None:
                self._drop(reason, len(batch.lines))
                upload.lost += len(batch.lines)
                return 0
            batch.header = {
                "version": WIRE_VERSION, "run": self._run, "kind": key[0], "rollout_id": key[1], "part": part,
                "parts": part + 1 if final else None, "final": final, "batch_id": "%s-%d" % (upload.id, part),
                "upload": upload.id, "lost": upload.lost,
            }  # fmt: skip
            self._queue.append(batch)
            self._queued_bytes += batch.size
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rollscope-sender", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return len(batch.lines)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    break
                batch = self._queue.popleft()
                self._queued_bytes -= batch.size
                self._busy = 1
            try:
                reason = self._post(batch)
            except Exception as exc:
                reason = "error"
                self._last_error = repr(exc)
                _failed("sender", exc)
            with self._changed:
                if reason is None:
                    self._counts["sent_batches"] += 1
                    self._counts["sent_samples"] += len(batch.lines)
                else:
                    self._drop(reason, len(batch.lines))
                self._busy = 0
                self._changed.notify_all()
        self._disconnect()

    def _post(self, batch: _Batch) -> Optional[str]:
        """Sends one batch; returns why it was given up, or None."""
        body = gzip.compress(b"\n".join([_encode(batch.header)] + batch.lines) + b"\n", 5)
        wait = self._backoff[0]
        for attempt in range(self._retries + 1):
            if self._abandon:
                return "closed"
            after = None
            try:
                status, after, text = self._request(body, batch.header["batch_id"])
                if 200 <= status < 300:
                    self._counts["sent_bytes"] += len(body)
                    return None
                self._last_error = "HTTP %d: %s" % (status, text)
                if status not in (408, 425, 429) and status < 500:
                    _failed("send_rejected", RuntimeError(self._last_error))
                    return "rejected"
            except (OSError, http.client.HTTPException) as exc:
                self._last_error = repr(exc)
            if attempt == self._retries:
                break
            self._counts["retries"] += 1
            pause = min(self._backoff[1], wait) * (0.5 + random.random() / 2)
            if after is not None:
                pause = max(pause, min(after, self._backoff[1]))
            wait *= 2
            with self._changed:
                self._changed.wait_for(lambda: self._abandon, pause)
        _failed("send_retries", RuntimeError(self._last_error))
        return "retries"

    def _request(self, body: bytes, batch_id: str) -> Tuple[int, Optional[float], str]:
        url = self._url
        assert url is not None and url.hostname is not None
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip", "Idempotency-Key": batch_id, "User-Agent": "rollscope-trace/1"}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        path = url.path + ("?" + url.query if url.query else "")
        for fresh in (False, True):  # a kept connection may have been closed by the other side
            reused = self._connection is not None
            if self._connection is None:
                if url.scheme == "https":
                    context = ssl.create_default_context(cafile=self._ca_file)
                    self._connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=self._timeout, context=context)
                else:
                    self._connection = http.client.HTTPConnection(url.hostname, url.port, timeout=self._timeout)
            try:
                self._connection.request("POST", path, body, headers)
                response = self._connection.getresponse()
                text = response.read(1 << 16)
                after = response.getheader("Retry-After")
                if response.will_close or not response.isclosed():
                    self._disconnect()
                try:
                    seconds = float(after) if after else None
                except ValueError:
                    seconds = None
                return response.status, seconds, text[:300].decode("utf-8", "replace")
            except BaseException as exc:
                self._disconnect()
                if fresh or not reused or not isinstance(exc, (ConnectionError, http.client.BadStatusLine)):
                    raise
        raise http.client.HTTPException("unreachable")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as exc:
                _failed("sender_close", exc)

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until nothing is queued or under way; False when the timeout came first."""
        if os.getpid() != self._pid:
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)

    def close(self, timeout: Optional[float] = 30.0) -> bool:
        """Flushes, stops the thread, and counts what could not be sent in time as dropped."""
        if os.getpid() != self._pid:
            return True
        done = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._abandon = not done
            while self._queue:
                batch = self._queue.popleft()
                self._queued_bytes -= batch.size
                self._drop("closed", len(batch.lines))
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and done:
            thread.join(1.0)
        atexit.unregister(self._at_exit)
        return done

    def stats(self) -> Dict[str, Any]:
        """Batches, samples and bytes sent, retries, samples dropped by reason, and the last error."""
        self._forked()
        with self._changed:
            return {**self._counts, "queued_batches": len(self._queue), "dropped_samples": dict(self._dropped), "last_error": self._last_error}

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, exc_type: Any, exc: Any, tb: Any) -> None:
        self.close()
