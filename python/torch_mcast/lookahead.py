"""Which modules gather for which others ahead of time, and what takes that back.

A gather ahead is a guess: that the module will run, and that nobody changes its weights before. FSDP2
keeps a result until the module runs, however late. Here it lives no longer than the forward or the backward
that began it, and is dropped where torch has counted a write to the weights. What is dropped is gathered anew
when the module runs, as FSDP2 does it without anything ahead. What FSDP2 gathers by itself, or since the user
has asked for it, is left to FSDP2.

In a forward FSDP2 gathers ahead what is in its lists, which we make. In a backward it gathers by itself for
the group before, in the order of the forward. We leave that to it, and gather for further ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.distributed.fsdp import FSDPModule

from .param_groups import drop, groups_of, in_backward, instead, on_cpu, param_groups, versions

_LIST = "_states_to_forward_prefetch"
_LISTS = (_LIST, "_states_to_backward_prefetch")


class Lookahead:
    """Lets each module of a model gather for the next ones.

    Every rank runs the same program, so that all drop the same results at the same places.
    """

    def __init__(self, model: nn.Module, ahead: int) -> None:
        """Begin; ahead is how many modules, 1 or more."""
        self._states: list[Any] = []
        self._lists: dict[Any, list[Any]] = {}  # of each state for its forward, which this object has made
        self.behind: dict[Any, list[Any]] = {}  # which groups one gathers for in its backward
        self._guesses: list[_Guess] = []
        self._hooks: list[Any] = []
        self._raised: Any = None  # the state of a root whose forward raised: FSDP takes it to be running
        self._ends_with_backward = False
        self.gathered_by_fsdp = False  # what is gathered now
        begin, end = torch.compiler.disable(self._begin), torch.compiler.disable(self._end)
        for module in model.modules():
            if not isinstance(module, FSDPModule):
                continue
            hooked: Any = module
            self._hooks.append(hooked.register_forward_pre_hook(begin, prepend=True))  # before FSDP's own
            self._hooks.append(hooked.register_forward_hook(end, always_call=True))  # after FSDP's own
            state = module._get_fsdp_state()
            if state in self._states:
                continue
            self._states.append(state)
            for group in param_groups(module):
                self._guesses.append(_Guess(self, state, group, on_cpu(module)))
        for root in _roots(model):
            self._chain(root, ahead)

    def leave(self) -> None:
        """Take everything back, for another enable()."""
        self.drop()
        for hook in self._hooks:
            hook.remove()
        for guess in self._guesses:
            guess.leave()
        for state, chosen in self._lists.items():
            if getattr(state, _LIST) is chosen:
                setattr(state, _LIST, [])

    def drop(self) -> None:
        """Wait for what was gathered ahead and not used, and forget it."""
        failure: Exception | None = None
        for guess in self._guesses:
            try:
                guess.drop()
            except Exception as e:
                failure = failure or e
        if failure is not None:
            raise failure

    def chosen_by_user(self, target: Any) -> bool:
        """Say whether a list that the user has made names a state: then FSDP alone says what it holds."""
        return any(
            target in (chosen := getattr(state, name)) and chosen is not self._lists.get(state)
            for state in self._states
            for name in _LISTS
        )

    def end_with_backward(self) -> None:
        """Drop at the end of the running backward what will be left over then."""
        if not self._ends_with_backward and in_backward():
            # Once for a backward and those that it runs within (reentrant checkpoints).
            self._ends_with_backward = True
            Variable._execution_engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        self._ends_with_backward = False
        self.drop()

    def _begin(self, module: Any, _: object) -> None:
        if in_backward():
            return  # what is computed again belongs to the backward
        state = module._get_fsdp_state()
        if self._outermost(state):
            if state._state_ctx.iter_forward_root is not self._raised or state is self._raised:
                self._raised = None
            self._ends_with_backward = False  # a backward that raised did not end
            self.drop()

    def _end(self, module: Any, _: object, __: object) -> None:
        if in_backward():
            return
        state = module._get_fsdp_state()
        if self._outermost(state):
            if state._state_ctx.iter_forward_root is state:
                self._raised = state  # or FSDP's own hook would have run, which says that none is running
            self.drop()

    def _outermost(self, state: Any) -> bool:
        """Say whether no forward of another module is around that of this one."""
        running = state._state_ctx.iter_forward_root
        return running is None or running is state or running is self._raised

    def _chain(self, root: Any, ahead: int) -> None:
        """Let the state of a root and each below it gather for the next ones."""
        found = (m._get_fsdp_state() for m in root.modules() if isinstance(m, FSDPModule) and param_groups(m))
        states = list(dict.fromkeys(found))  # modules may share one
        # The root is not resharded after its forward: its backward comes first and gathers nothing itself.
        first = 1 if param_groups(root) else 0
        backward = [*states[:first], *reversed(states[first:])]
        for i, state in enumerate(states[:-1]):
            if not getattr(state, _LIST):  # or the user chose otherwise
                self._lists[state] = states[i + 1 : i + 1 + ahead]
                setattr(state, _LIST, self._lists[state])
        for i, state in enumerate(backward[:-1]):
            targets = backward[i + 1 : i + 1 + ahead]
            # The backward of its last group is the last one to begin.
            self.behind[groups_of(state)[-1]] = [g for target in targets for g in reversed(groups_of(target))]


class _Guess:
    """What a parameter group has gathered before its module runs."""

    def __init__(self, lookahead: Lookahead, state: Any, group: Any, on_cpu: bool) -> None:
        self.lookahead, self._state, self._group = lookahead, state, group
        self._was_async = group.unshard_async_op
        self._begun = False  # what the group has gathered and not taken yet is a guess
        self._versions: list[tuple[int, ...]] = []
        if on_cpu:
            group.unshard_async_op = True
        instead(group, "unshard", self)
        instead(group, "_backward_prefetch", self._in_backward)

    def __call__(self, async_op: bool = False) -> None:
        """Begin to gather, as FSDP does, but do not go on with what has become wrong."""
        group = self._group
        if self._pending() and self._versions != versions(group):
            self.drop()
        by_fsdp = self.lookahead.gathered_by_fsdp
        if by_fsdp:
            self._begun = False
        elif (self._ahead() and self._of_another_root()) or self._after_its_backward():
            return
        before = group._all_gather_result
        type(group).unshard(group, async_op)
        if group._all_gather_result is before:
            return
        self._begun = group._training_state.name != "IDLE" and not by_fsdp
        if self._begun:  # and not by the user, nor by FSDP2 itself
            self._versions = versions(group)
            self.lookahead.end_with_backward()

    def _in_backward(self) -> None:
        """Let FSDP2 gather for the group that it takes to be next, then gather for further ones."""
        kind = type(self._group)
        self.lookahead.gathered_by_fsdp = True
        try:
            kind._backward_prefetch(self._group)
        finally:
            self.lookahead.gathered_by_fsdp = False
        for group in self.lookahead.behind.get(self._group, ()):
            kind._prefetch_unshard(group, "backward")

    def drop(self) -> None:
        """Wait for what the group has gathered and not taken, and forget it."""
        if self._pending() and not self.lookahead.chosen_by_user(self._state):
            drop(self._group)

    def leave(self) -> None:
        """Give FSDP its methods back."""
        self._group.unshard_async_op = self._was_async
        for method in ("unshard", "_backward_prefetch"):
            instead(self._group, method, None)

    def _pending(self) -> bool:
        return self._begun and self._group._all_gather_result is not None

    def _ahead(self) -> bool:
        """Say whether another module's turn is now, which gathers for this one."""
        group, state = self._group._training_state.name, self._state._training_state.name
        return bool(group != "IDLE" and state == "IDLE")

    def _after_its_backward(self) -> bool:
        """Say whether a backward computes a forward again, which gathers ahead: the next had its backward.

        A reentrant checkpoint around a module does that. What is needed again has a gather of its own.
        """
        group, state = self._group._training_state.name, self._state._training_state.name
        ahead = group == "FORWARD" and state != "FORWARD"
        return ahead and in_backward() and not self.lookahead.chosen_by_user(self._state)

    def _of_another_root(self) -> bool:
        """Say whether FSDP2 takes this for another model: it was called by itself, or not at all."""
        return self._state._is_root is not False and not self.lookahead.chosen_by_user(self._state)


def take_back(modules: Iterable[FSDPModule]) -> None:
    """Undo what an earlier enable() has made modules gather ahead."""
    for module in modules:
        for group in param_groups(module):
            if isinstance(guess := vars(group).get("unshard"), _Guess):
                guess.lookahead.leave()


def _roots(model: nn.Module) -> Iterator[FSDPModule]:
    """Yield the FSDP modules that no other is around: the model itself if it is one."""
    inside: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, FSDPModule) and module not in inside:
            inside.update(module.modules())
            yield module
