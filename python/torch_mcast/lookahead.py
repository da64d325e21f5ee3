"""Which modules gather for which others ahead of time, and what takes that back.

A gather ahead is a guess: that the module will run, and that nobody changes its weights before. FSDP2
keeps a result until the module runs, however late. Here it lives no longer than the forward or the backward
that began it, and is dropped where torch has counted a write to the weights. A dropped result is gathered
anew when the module runs, as FSDP2 does it without anything ahead.

Gathers of FSDP2 itself, or at the user's wish, are left to FSDP2: in a backward the group before, in the
order of the forward, and the modules in lists that the user has made. A module with such a list gathers
nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.distributed.fsdp import FSDPModule

from .param_groups import drop, groups_of, in_backward, instead, on_cpu, param_groups, versions


class Lookahead:
    """Lets each module of a model gather for the next ones.

    Every rank runs the same program, so that all drop the same results at the same places.
    """

    def __init__(self, model: nn.Module, ahead: int) -> None:
        """Begin; ahead is how many modules, 1 or more."""
        self._guesses: dict[Any, _Prefetch] = {}  # of each parameter group
        self._hooks: list[Any] = []
        self._states: set[Any] = set()  # of all modules of the model that are sharded
        self._running: Any = None  # the outermost module that runs its forward
        self._raised: set[Any] = set()  # roots with a forward that raised: FSDP takes them to be running
        self._ends_with_backward = False
        begin, end = torch.compiler.disable(self._begin), torch.compiler.disable(self._end)
        for module in model.modules():
            if not isinstance(module, FSDPModule):
                continue
            state = module._get_fsdp_state()
            self._states.add(state)
            instead(
                state, "_root_pre_forward", torch.compiler.disable(partial(self._root_pre_forward, state))
            )
            hooked: Any = module
            self._hooks.append(hooked.register_forward_pre_hook(begin, prepend=True))  # before FSDP's own
            self._hooks.append(hooked.register_forward_hook(end, always_call=True))  # after FSDP's own
            for group in param_groups(module):  # modules may share one
                if group not in self._guesses:
                    self._guesses[group] = _Prefetch(self, module._get_fsdp_state(), group, on_cpu(module))
        for root in _roots(model):
            self._chain(root, ahead)

    def leave(self) -> None:
        """Take everything back, for another enable()."""
        self.drop()
        for hook in self._hooks:
            hook.remove()
        for state in self._states:
            instead(state, "_root_pre_forward", None)
        for guess in self._guesses.values():
            guess.leave()

    def drop(self) -> None:
        """Wait for what was gathered ahead and not used, and forget it."""
        failure: Exception | None = None
        for guess in self._guesses.values():
            try:
                guess.drop()
            except Exception as e:
                failure = failure or e
        if failure is not None:
            raise failure

    def end_with_backward(self) -> None:
        """Drop at the end of the running backward what will be left over then."""
        if not self._ends_with_backward and in_backward():
            # Once for a backward and any that it runs within (reentrant checkpoints).
            self._ends_with_backward = True
            Variable._execution_engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        self._ends_with_backward = False
        self.drop()

    def _begin(self, module: Any, _: object) -> None:
        if in_backward():
            return  # a recomputed forward belongs to the backward
        state = module._get_fsdp_state()
        if self._outermost(state):
            self._raised = {s for s in self._raised - {state} if s._state_ctx.iter_forward_root is s}
            self._ends_with_backward = False  # a backward that raised did not end
            self._running = state
            self.drop()

    def _end(self, module: Any, _: object, __: object) -> None:
        if in_backward():
            return
        state = module._get_fsdp_state()
        if state is self._running:
            self._running = None
        if self._outermost(state):
            if state._state_ctx.iter_forward_root is state:
                self._raised.add(state)  # or FSDP's own hook would have run, which says that none is running
            self.drop()

    def _outermost(self, state: Any) -> bool:
        """Say whether this module's forward runs outside any other module's forward of the model."""
        root = state._state_ctx.iter_forward_root
        if root is None or root is state:
            return True
        # Torch calls no hook after a KeyboardInterrupt; FSDP's reset says then that nothing is running.
        running = self._running
        if running not in (None, state) and running._training_state.name == "FORWARD":
            return False
        # Nothing of the model is running. A larger one around it may be, or has raised.
        return root in self._raised or root not in self._states

    def _root_pre_forward(self, state: Any, *args: Any) -> Any:
        """Drop leftovers where FSDP begins a forward without hooks: a method registered with FSDP."""
        if state._state_ctx.iter_forward_root is None and not in_backward():
            self.drop()
        return type(state)._root_pre_forward(state, *args)

    def _chain(self, root: Any, ahead: int) -> None:
        """Let the state of a root and each below it gather for the next ones."""
        forward = _states(root.modules())
        backward = _states(_inside_first(root))[::-1]  # a module's backward begins before that of its parts
        for order, way in ((forward, "ahead"), (backward, "behind")):
            for i, state in enumerate(order[:-1]):
                last = self._guesses[groups_of(state)[-1]]  # the last to begin of several
                groups = (g for s in order[i + 1 : i + 1 + ahead] for g in _in_order(s, way))
                setattr(last, way, [self._guesses[g] for g in groups])


class _Prefetch:
    """What a parameter group has gathered before its module runs."""

    def __init__(self, lookahead: Lookahead, state: Any, group: Any, on_cpu: bool) -> None:
        self.ahead: list[_Prefetch] = []  # of the groups that this one gathers for in its forward
        self.behind: list[_Prefetch] = []  # and in its backward
        self.lookahead, self._state, self._group = lookahead, state, group
        self._was_async = group.unshard_async_op
        self._guessing = False  # the gather that begins now is a guess
        self._begun = False  # what the group has gathered and not taken yet is one
        self._versions: list[tuple[int, ...]] = []
        if on_cpu:
            group.unshard_async_op = True
        for method, ours in (
            ("unshard", self),
            ("pre_forward", self._pre_forward),
            ("_backward_prefetch", self._backward_prefetch),
        ):
            instead(group, method, ours)

    def __call__(self, async_op: bool = False) -> None:
        """Begin to gather, as FSDP does, but do not go on with what has become wrong."""
        group = self._group
        if self._pending() and self._versions != versions(group):
            self.drop()
        if not self._guessing:
            self._begun = False  # it is FSDP2's own now, or the user's
        elif self._of_another_root():
            return
        before = group._all_gather_result
        type(group).unshard(group, async_op)
        if self._guessing and group._all_gather_result is not before:
            self._begun, self._versions = True, versions(group)
            self.lookahead.end_with_backward()

    def _pre_forward(self, *args: Any) -> Any:
        """Let FSDP2 begin the group's forward, then gather for modules that come after it."""
        # Not the second of modules that share it. A module that needs no gather makes none for others
        # either: it may run more often on one rank than on another.
        begins = self._group._training_state.name != "FORWARD" and not self._group.is_unsharded
        result = type(self._group).pre_forward(self._group, *args)
        if begins and not self._after_its_backward() and not self._state._states_to_forward_prefetch:
            for guess in self.ahead:
                guess._gather("forward")
        return result

    def _backward_prefetch(self) -> None:
        """Let FSDP2 gather for the group that it takes to be next, then gather for further ones."""
        type(self._group)._backward_prefetch(self._group)
        for guess in self.behind:
            guess._gather("backward")

    def _gather(self, way: str) -> None:
        self._guessing = True
        try:
            type(self._group)._prefetch_unshard(self._group, way)
        finally:
            self._guessing = False

    def drop(self) -> None:
        """Wait for what the group has gathered and not taken, and forget it."""
        if self._pending():
            drop(self._group)

    def leave(self) -> None:
        """Give FSDP its methods back."""
        self._group.unshard_async_op = self._was_async
        for method in ("unshard", "pre_forward", "_backward_prefetch"):
            instead(self._group, method, None)

    def _pending(self) -> bool:
        return self._begun and self._group._all_gather_result is not None

    def _after_its_backward(self) -> bool:
        """Say whether a backward computes a forward again: the modules after it have had their backward.

        A reentrant checkpoint around a module does that. Parameters needed again have their own gather.
        """
        return in_backward()

    def _of_another_root(self) -> bool:
        """Say whether FSDP2 takes this for another model: it was called by itself, or not at all."""
        return self._state._is_root is not False


def _in_order(state: Any, way: str) -> list[Any]:
    """Return the groups of a state. A backward comes to the last one first."""
    groups = groups_of(state)
    return groups if way == "ahead" else groups[::-1]


def _states(modules: Iterable[nn.Module]) -> list[Any]:
    """Return FSDP's states of modules, which may share one, where they have groups."""
    found = (m._get_fsdp_state() for m in modules if isinstance(m, FSDPModule))
    return [state for state in dict.fromkeys(found) if groups_of(state)]


def _inside_first(module: nn.Module) -> Iterator[nn.Module]:
    """Yield all modules below a module, and then itself."""
    for child in module.children():
        yield from _inside_first(child)
    yield module


def take_back(groups: Iterable[Any]) -> None:
    """Undo what an earlier enable() has made parameter groups gather ahead."""
    for group in groups:
        if isinstance(guess := vars(group).get("unshard"), _Prefetch):
            guess.lookahead.leave()


def _roots(model: nn.Module) -> Iterator[FSDPModule]:
    """Yield the FSDP modules that no other is around: the model itself if it is one."""
    inside: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, FSDPModule) and module not in inside:
            inside.update(module.modules())
            yield module
