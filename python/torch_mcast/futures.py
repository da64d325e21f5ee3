"""Futures of a lane's operations are completed in posting order, even if their callbacks wait."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger(__name__)
_inside = 0  # threads that complete a future and drop its work: they are below torch, in C++
_changed = threading.Condition()


def wait_for_callbacks(seconds: float) -> bool:
    """Wait at most this long until no thread completes a future; say whether none does.

    Python ends such a thread where it next wants the interpreter, and C++ aborts the process for that.
    """
    with _changed:
        return _changed.wait_for(lambda: _inside == 0, seconds)


def _enter(threads: int) -> None:
    global _inside
    with _changed:
        _inside += threads
        _changed.notify_all()


class Pending(Protocol):
    """An operation in flight, as its lane sees it."""

    def poll(self) -> bool:
        """Say whether it is done, well or not. Does not block."""

    def settle(self) -> None:
        """Block until it is done, well or not. Does not raise its error."""

    def complete_future(self, notify: Callable[[], None]) -> None:
        """Give the outcome of an operation that is done to its future; call notify() before its callbacks."""


class Futures:
    """Works with a future that is still to be completed.

    A future runs the program's callbacks on the thread that completes it, and a callback may wait for a later
    future. So one thread at a time has the turn: it takes a work, waits for it and completes its future. It
    passes the turn on before the callbacks run. An operation that is done when a program asks for its future
    is not among them: its future is complete at once.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting = 0  # threads for the turn
        self._start()

    def put(self, work: Pending | None) -> None:
        """Complete the future of a work after those before it; None ends the threads."""
        self._works.put(work)

    def _start(self) -> None:
        self._waiting += 1
        try:
            threading.Thread(target=self._run, name="mcast-futures", daemon=True).start()
        except RuntimeError:  # the interpreter ends
            self._waiting -= 1

    def _run(self) -> None:
        while True:
            self._turn.acquire()
            with self._lock:
                self._waiting -= 1
            work = self._works.get()
            if work is None:
                self._works.put(None)  # for the other threads
                self._turn.release()
                return
            self._complete(work)
            del work  # not kept until the next one comes; its end is in C++, too
            _enter(-1)
            with self._lock:
                if self._waiting:
                    return
                self._waiting += 1

    def _complete(self, work: Pending) -> None:
        has_turn = True

        def notify() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._pass_turn()

        try:
            try:
                work.settle()
            finally:
                _enter(1)
            work.complete_future(notify)
        except Exception:  # e.g. the program has set the future; those after it are still to come
            _log.exception("cannot complete the future of %s", work)
        finally:
            notify()

    def _pass_turn(self) -> None:
        with self._lock:
            if not self._waiting:
                self._start()
        self._turn.release()
