"""The torch Work of one operation."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from . import _lib, capture, errors, profile
from .group import SLICE_MS, Group, Lane
from .recorder import Recorder
from .tensor import fill_behind

_LOOK_S = 2e-4  # between looks at a device's stream
NO_TIMEOUT = timedelta(0)  # what torch passes for "none given"


class McastWork(Work):
    """An operation in flight, on tensors that it keeps alive.

    All methods may be called from any thread. The library keeps the outcome
    until it is asked to forget the work, so a wait that a signal handler ends
    with an exception, such as KeyboardInterrupt, loses nothing: the next one gets it.
    """

    def __init__(
        self,
        group: Group,
        lane: Lane,
        handle: int,
        name: str,
        outputs: list[torch.Tensor],
        keep: tuple[torch.Tensor, ...],
        finish: Callable[[], None] | None,
        timeout: timedelta,
        number: int,
        recorder: Recorder,
        event: profile.Event | None,
    ) -> None:
        """Track a posted operation.

        Args:
            group: where it was posted.
            lane: its lane there.
            handle: the library's work.
            name: for messages, e.g. "all_gather of 4096 bytes a rank".
            outputs: tensors that the caller gets results in.
            keep: tensors with memory that the library reads or writes meanwhile.
            finish: runs once after success: copies from staging to outputs.
            timeout: how long wait() waits unless it is given another.
            number: of the collective in the group; 0: it is none.
            recorder: is notified of its end.
            event: in the profiler's trace, to be ended.
        """
        super().__init__()
        self._group = group
        self._lane = lane
        self._handle = handle
        self._name = name
        self._outputs = outputs
        self._keep: tuple[torch.Tensor, ...] = keep
        self._finish = finish
        self._ready: Callable[[], bool] = getattr(finish, "ready", _yes)  # finish would not wait for a device
        self._timeout = timeout
        self._recorder = recorder
        self._event = event
        self._settling = threading.RLock()  # as finish copies, a signal handler may abort the group
        self._finisher: int | None = None  # the thread that runs finish
        self._futures = threading.Lock()
        self._done = False
        self._error: Exception | None = None
        self._ended: torch.futures.Future[None] | None = None
        self._notify: Callable[[], None] = _nothing
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None
        if number:
            recorder.posted(self, number)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Block until the operation is done and raise its error, if any.

        Args:
            timeout: raise WaitTimeoutError after this long; 0 or less: the
                timeout of the operation, else the group's.
        """
        if not self._done:
            limit = timeout if timeout > NO_TIMEOUT else self._timeout
            if not self._settle(limit.total_seconds()):
                seconds = f"{limit.total_seconds():g} s"
                late = f"{self._name} was not done within its timeout of {seconds}; it goes on"
                self._recorder.late(late)
                raise errors.WaitTimeoutError(late)
        if self._error is not None:
            raise self._error
        return True

    def settle(self) -> None:
        """Block until the operation is done, well or not."""
        self._settle(None)

    def poll(self) -> bool:
        """Say whether the operation is done, without blocking."""
        if not self._done and self._finisher is None:
            try:
                ready = self._group.lib.test(self._handle) and self._ready()
            except errors.McastError as e:
                self._end(e)
            else:
                if ready:
                    self._advance(-1)
        return self._done

    def is_completed(self) -> bool:
        """Say whether the operation is done, well or not."""
        return self.poll()

    def is_success(self) -> bool:
        """Say whether the operation is done and well."""
        return self.poll() and self._error is None

    def exception(self) -> Exception | None:
        """Return the error of the operation, or None while there is none."""
        return self._error if self.poll() else None

    def result(self) -> list[torch.Tensor]:
        """Return the output tensors of an operation that is done."""
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        """Wait: on a CPU there is no stream to order against."""
        self.wait()

    def source_rank(self) -> int:
        """Not known: the operations here are collectives."""
        raise RuntimeError(f"{self._name} has no source rank")

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of the output tensors: complete if the operation is, else once a watcher has seen its end."""
        probe = _probe
        if probe.active:
            probe.found = self
            return _probe_future()
        with self._futures:
            if self._future is None:
                # Of a future that a program fails, set_exception makes one of torch's that
                # succeeds with the exception as its value. A callback that raises makes one
                # that fails.
                self._ended = self._new_future()
                self._future = self._ended.then(lambda _: self._outcome())
                self._future.add_done_callback(lambda _: self._notify())  # the first of its callbacks
                if self._waited_for():  # DDP.join takes the value at once, after it has waited for the work
                    self.complete_future(_nothing)
                else:
                    self._lane.watch(self)
            return self._future

    def _waited_for(self) -> bool:
        """Say whether a wait would return at once."""
        return self._done

    def _new_future(self) -> torch.futures.Future[None]:
        return torch.futures.Future()

    def complete_future(self, notify: Callable[[], None]) -> None:
        """Give the outcome to the future that get_future returned; call notify() before its callbacks."""
        assert self._ended is not None
        self._notify = notify
        self._ended.set_result(None)

    def _outcome(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._outputs

    def _settle(self, seconds: float | None) -> bool:
        """Wait at most this long; return whether the operation is done."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._done:
            if self._finisher == threading.get_ident():
                raise RuntimeError(f"{self._name}: a signal handler waits for the work that it interrupted")
            left = SLICE_MS
            if deadline is not None:
                left = min(SLICE_MS, int((deadline - time.monotonic()) * 1000))
                if left < 0:
                    return False
            self._advance(left)
        return True

    def _advance(self, timeout_ms: int) -> None:
        """Wait for the library, and keep the outcome if there is one."""
        try:
            if not _lib.usable():
                _lib.library()  # raises ForkError
            if not self._group.lib.wait(self._handle, timeout_ms):
                return
            if not self._ready():
                time.sleep(_LOOK_S)
                return
        except errors.McastError as e:
            self._end(e)
        else:
            self._end(None)

    def _sign(self, error: errors.McastError) -> None:
        """Have an error begin with the name of this operation, once."""
        name = f"{self._name}: "
        if not str(error).startswith(name):
            error.args = (f"{name}{error}",)

    def _end(self, error: Exception | None) -> None:
        """Keep an outcome of the library, unless another call has done so; then let it forget."""
        with self._settling:
            if self._done or self._finisher is not None:  # the call that a signal handler interrupts
                return
            self._finisher = threading.get_ident()
            try:
                if error is None:
                    self._learn()
                if error is None and self._finish is not None:
                    with torch.no_grad():
                        self._finish()
            except Exception as e:
                error = e
            finally:  # ^C leaves the outcome to the next call
                profile.end(self._event)  # before anyone learns of the outcome
                self._finisher = None
            if isinstance(error, errors.McastError):  # not of a copy here, which no other rank knows of
                self._group.failed = True
                self._sign(error)
            self._error = error
            first = self._record()  # before another thread, which waits, can ask for a trace
            self._done = True
        self._keep = ()
        self._finish = None
        self._lane.drop(self)
        if _lib.usable():
            self._group.lib.forget(self._handle)
        if first:
            self._recorder.report(f"{self._name} has failed")

    def _learn(self) -> None:
        """Ask the library for what it knows of an operation that is done and well, before it forgets."""

    def _record(self) -> bool:
        """Note the outcome in the recorder; return whether it is the first failure of the group."""
        if self._error is not None:
            return self._recorder.failed(self)
        known = self._recorder.on and _lib.usable()
        self._recorder.completed(self, self._group.lib.account(self._handle) if known else None)
        return False


class MessageWork(McastWork):
    """A send or receive in flight."""

    _source: int | None = None

    def _learn(self) -> None:
        if self._outputs:
            self._source, nbytes = self._group.lib.source(self._handle)
            if self._finish is not None and nbytes < self._keep[0].nbytes:
                with capture.beside() if self._outputs[0].is_cuda else nullcontext():
                    fill_behind(self._keep[0], nbytes, self._outputs[0])

    def source_rank(self) -> int:
        """Return the rank that a receive got its data from."""
        self.wait()
        if self._source is None:
            raise RuntimeError(f"{self._name} has no source rank")
        return self._source


def _nothing() -> None:
    """Do nothing."""


def _yes() -> bool:
    return True


class JoinedWork(Work):
    """Several works as one: the coalesced operations, and calls that are several operations."""

    def __init__(
        self,
        works: Sequence[AnyWork],
        outputs: list[torch.Tensor] | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        """Join works.

        Args:
            works: what to join.
            outputs: tensors that the caller gets results in; None: those of the works, one after another.
            finish: runs once after all works have succeeded.
        """
        super().__init__()
        self._works = works
        self._outputs = outputs
        self._finish = finish
        self._finishing = threading.RLock()  # a signal handler may wait for the work that it interrupted
        self._error: Exception | None = None  # of finish

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait for all; the timeout is for each."""
        for work in self._works:
            work.wait(timeout)
        self._complete()
        return True

    def _complete(self) -> None:
        """Run finish, unless it has run; raise its error, if any."""
        with self._finishing:
            if self._finish is not None:
                try:
                    self._finish()
                except Exception as e:
                    self._error = e
                self._finish = None
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        """Say whether all are done."""
        if not all(work.is_completed() for work in self._works):
            return False
        if all(work.is_success() for work in self._works):
            with suppress(Exception):  # which is kept
                self._complete()
        return True

    def is_success(self) -> bool:
        """Say whether all are done and well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return the first error, or None."""
        return next((e for work in self._works if (e := work.exception()) is not None), self._error)

    def result(self) -> list[torch.Tensor]:
        """Return all outputs."""
        self.wait()
        return self._all([work.result() for work in self._works])

    def _all(self, results: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        if self._outputs is not None:
            return self._outputs
        return [tensor for each in results for tensor in each]

    def synchronize(self) -> None:
        """Wait for all."""
        self.wait()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of all outputs."""
        if _probe.active:
            _probe.found = self
            return _probe_future()
        together = torch.futures.collect_all([work.get_future() for work in self._works])

        def outcome(done: Any) -> list[torch.Tensor]:
            results = [each.value() for each in done.value()]
            self._complete()
            return self._all(results)

        return together.then(outcome)


AnyWork = McastWork | JoinedWork


class _Probe(threading.local):
    active = False
    found: AnyWork | None = None


_probe = _Probe()


def _probe_future() -> torch.futures.Future[list[torch.Tensor]]:
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result([])
    return future


def unwrap(work: Work) -> AnyWork | None:
    """Return the work of ours that torch holds inside `work`, or None.

    torch wraps the Work of a Python backend in a C++ holder that forwards wait
    and get_future and nothing else. get_future is therefore also the way in.
    """
    if isinstance(work, (McastWork, JoinedWork)):
        return work
    if type(work) is not Work:
        return None
    _probe.active, _probe.found = True, None
    try:
        work.get_future()
    except RuntimeError:  # a work of another backend that has no future
        return None
    finally:
        _probe.active = False
    found, _probe.found = _probe.found, None
    return found


_forwarded = (
    "is_completed",
    "is_success",
    "exception",
    "result",
    "synchronize",
    "source_rank",
    "_source_rank",
)


def forward_holders() -> None:
    """Make torch's holder answer is_completed() and its like from our work, unless MCAST_PATCH_TORCH is off.

    Without this, is_completed() of a work from any Python backend stays False
    for ever (torch 2.9 to 2.15), and a program that polls it hangs. The holder
    came with https://github.com/pytorch/pytorch/pull/146376, and passes on wait
    and get_future alone. Works of other backends keep their own methods. Done
    once a process.

    Raises:
        ArgumentError: MCAST_PATCH_TORCH is neither on nor off.
    """
    wanted = os.environ.get("MCAST_PATCH_TORCH") or "on"
    if wanted not in ("on", "off"):
        raise errors.ArgumentError(f"MCAST_PATCH_TORCH={wanted} is not allowed: it must be one of on, off")
    if wanted == "off" or hasattr(Work, "_mcast_forwards"):
        return
    for name in _forwarded:
        setattr(Work, name, _forward(name, getattr(Work, name)))
    setattr(Work, "_mcast_forwards", True)  # noqa: B010  # torch's class has no such attribute to a type checker


def _forward(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Work, *args: Any) -> Any:
        ours = unwrap(self)
        return original(self, *args) if ours is None else getattr(ours, name.lstrip("_"))(*args)

    method.__name__ = name
    method.__doc__ = original.__doc__
    return method
