"""Faults that enable() had, put back by a patch, for the random programs to find."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.distributed.fsdp import FSDPModule

import torch_mcast.fsdp
from torch_mcast import in_flight, lookahead
from torch_mcast.param_groups import groups_of, in_backward, param_groups

_fsdp: Any = torch_mcast.fsdp
_of_torch: Any = FSDPModule


def not_enabled() -> AbstractContextManager[Any]:
    """No fault: run without enable() both times, which says that the programs themselves are right."""
    return mock.patch.object(_fsdp, "enable", return_value=None)


@contextmanager
def _after_enable(more: Callable[[Any], None]) -> Iterator[None]:
    """Do more to a model once it is enabled."""
    enable = _fsdp.enable

    def both(model: Any, **options: Any) -> Any:
        handle = enable(model, **options)
        more(model)
        return handle

    with mock.patch.object(_fsdp, "enable", both):
        yield


def _turn(model: Any, hidden: bool) -> None:
    """Let the last module gather, while its forward computes, what the backward needs after it."""
    modules = [m for m in model.modules() if isinstance(m, FSDPModule) and param_groups(m)]
    if len(modules) < 3:
        return

    def prefetch(*_: object) -> None:
        if torch.is_grad_enabled():
            modules[-2].unshard(async_op=True)

    last: Any = modules[-1]
    last.register_forward_pre_hook(torch.compiler.disable(prefetch) if hidden else prefetch)


def gathers_for_a_backward() -> AbstractContextManager[Any]:
    """The last block gathers for a backward, which may not come (faults-torch.md F1)."""
    return _after_enable(lambda model: _turn(model, hidden=True))


def seen_by_the_compiler() -> AbstractContextManager[Any]:
    """The hook that does it is one that Dynamo looks into (F4)."""
    return _after_enable(lambda model: _turn(model, hidden=False))


@contextmanager
def keeps_what_was_not_used() -> Iterator[None]:
    """What was gathered for a block that did not run is taken by a later forward (faults-fsdp.md A)."""
    with (
        mock.patch.object(lookahead.Lookahead, "drop", return_value=None),
        mock.patch.object(lookahead, "versions", return_value=[]),
    ):
        yield


def survives_a_write() -> AbstractContextManager[Any]:
    """What a forward has gathered ahead is taken though the weights were written to since (A)."""
    return mock.patch.object(lookahead, "versions", return_value=[])


def survives_an_unseen_write() -> AbstractContextManager[Any]:
    """What was gathered ahead outlives its forward, and a write that torch does not count."""
    return mock.patch.object(lookahead.Lookahead, "drop", return_value=None)


def _landed(waits: Callable[[], bool]) -> AbstractContextManager[Any]:
    """Let gradients wait for their Reduce-Scatter at some times alone."""
    unfinished: Any = in_flight._Unfinished
    landed = unfinished.landed

    def sometimes(self: Any) -> Any:
        return landed(self) if waits() else self.finished

    return mock.patch.object(unfinished, "landed", sometimes)


def unfinished_after_an_exception() -> AbstractContextManager[Any]:
    """After a backward that raised nobody waits for gradients (faults-fsdp.md B)."""
    return _landed(in_backward)


def unfinished_in_hooks() -> AbstractContextManager[Any]:
    """A hook that reads gradients does not wait for them (F5)."""
    return _landed(lambda: not in_backward())


def _heedless(of: str) -> AbstractContextManager[Any]:
    """Leave a Reduce-Scatter in flight although FSDP2 goes on with its output: for this reason."""
    reduce_scatter: Any = _fsdp._ReduceScatter
    why_block = reduce_scatter.why_block

    def heedless(*args: Any) -> Any:
        reason = why_block(*args)
        return None if reason is not None and of in reason else reason

    return mock.patch.object(reduce_scatter, "why_block", heedless)


def adds_what_is_not_there() -> AbstractContextManager[Any]:
    """Gradients are accumulated from what a Reduce-Scatter has not written yet."""
    return _heedless("gradient accumulation")


def casts_what_is_not_there() -> AbstractContextManager[Any]:
    """Gradients of mixed precision are cast from it."""
    return _heedless("the result is cast")


def shows_a_hook_what_is_not_there() -> AbstractContextManager[Any]:
    """A post-accumulate-grad hook is called before it is written."""
    return _heedless("a post-accumulate-grad hook")


def parts_as_roots() -> AbstractContextManager[Any]:
    """A module gathers ahead for one that FSDP2 takes for another model (faults-fsdp.md C)."""
    return mock.patch.object(lookahead._Prefetch, "_of_another_root", return_value=False)


def gathers_what_is_not_needed() -> AbstractContextManager[Any]:
    """set_unshard_in_backward(False) is not heeded (faults-fsdp.md D)."""
    return mock.patch.object(_of_torch, "set_unshard_in_backward", return_value=None)


def gathers_after_its_backward() -> AbstractContextManager[Any]:
    """What a reentrant checkpoint computes again gathers for modules that have had their backward."""
    return mock.patch.object(lookahead._Prefetch, "_after_its_backward", return_value=False)


def keeps_what_a_backward_has_gathered() -> AbstractContextManager[Any]:
    """A gather ahead in a backward is taken for one of FSDP2 itself, and is kept."""
    guess: Any = lookahead._Prefetch
    call = guess.__call__

    def kept(self: Any, async_op: bool = False) -> None:
        call(self, async_op)
        if in_backward():
            self._begun = False

    return mock.patch.object(guess, "__call__", kept)


def keeps_what_a_list_names() -> AbstractContextManager[Any]:
    """A gather ahead is kept if any list of the user's names its module, even one for another time."""
    guess: Any = lookahead._Prefetch
    drop = guess.drop

    def dropped(self: Any) -> None:
        states = {one._state for one in self.lookahead._guesses.values()}
        if not any(self._state in state._states_to_backward_prefetch for state in states):
            drop(self)

    return mock.patch.object(guess, "drop", dropped)


def gathers_for_itself() -> AbstractContextManager[Any]:
    """A state that two modules share is taken for two (clients.md 3)."""
    chain = lookahead.Lookahead._chain

    def with_itself(self: Any, root: Any, ahead: int) -> None:
        chain(self, root, ahead)
        modules = (m for m in root.modules() if isinstance(m, FSDPModule) and param_groups(m))
        states: list[Any] = [m._get_fsdp_state() for m in modules]
        for i, state in enumerate(states[:-1]):
            if state in states[i + 1 : i + 1 + ahead]:
                guess = self._guesses[groups_of(state)[-1]]
                guess.ahead.append(guess)

    return mock.patch.object(lookahead.Lookahead, "_chain", with_itself)


def ends_its_process() -> AbstractContextManager[Any]:
    """enable() ends the process, as a segmentation fault would."""
    return _after_enable(lambda _: os._exit(1))


@dataclass(frozen=True)
class Fault:
    """A fault: `plant` has it while within, and it is found `within` so many programs.

    From seed 0 on it took a quarter of them or less, but a half for "keeps what a backward has gathered".
    From seed 100000 on as well, but for "gathers after its backward", not found by the first 140.
    """

    plant: Callable[[], AbstractContextManager[Any]]
    within: int = 0  # 0: there is nothing to find
    compilers: tuple[str, ...] = ()  # that blocks are compiled by, to find it


FAULTS = {
    "not enabled": Fault(not_enabled),
    "gathers for a backward": Fault(gathers_for_a_backward, 100),
    "seen by the compiler": Fault(seen_by_the_compiler, 30, ("aot_eager",)),
    "keeps what was not used": Fault(keeps_what_was_not_used, 100),
    "survives a write": Fault(survives_a_write, 100),
    "survives an unseen write": Fault(survives_an_unseen_write, 150),
    "unfinished after an exception": Fault(unfinished_after_an_exception, 200),
    "unfinished in hooks": Fault(unfinished_in_hooks, 150),
    "adds what is not there": Fault(adds_what_is_not_there, 50),
    "casts what is not there": Fault(casts_what_is_not_there, 150),
    "shows a hook what is not there": Fault(shows_a_hook_what_is_not_there, 100),
    "parts as roots": Fault(parts_as_roots, 500),
    "gathers what is not needed": Fault(gathers_what_is_not_needed, 100),
    "gathers after its backward": Fault(gathers_after_its_backward, 500),
    "keeps what a backward has gathered": Fault(keeps_what_a_backward_has_gathered, 600),
    "keeps what a list names": Fault(keeps_what_a_list_names, 600),
    "ends its process": Fault(ends_its_process, 2),
    "gathers for itself": Fault(gathers_for_itself, 200),
}


@contextmanager
def planted(fault: str) -> Iterator[None]:
    """Have the fault of this name while within; "" is none."""
    if not fault:
        yield
        return
    with FAULTS[fault].plant():
        yield
