"""Draws programs: a model, how it is sharded and enabled, and the steps that are taken with it.

A program is a plain JSON object, so that all ranks get the same one and a failure can be kept. Each step
means something in each state: a backward without a loss does nothing, a block's number counts modulo the
blocks. So any part of a program that shrinking leaves is still a program. Choices that come first are the
simplest.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Draw = Any  # what a composite strategy is handed
Program = dict[str, Any]
Step = dict[str, Any]

KINDS = ("linear", "mlp", "norm", "scale", "bias", "nested", "dropout", "bias")
MODES = ("train", "train", "train", "no_grad", "inference", "eval")
HOOKS = ("module", "output", "parameter", "parameter", "input", "as numbers", "scales", "takes away")
LOADS = ("to_local", "data", "state_dict", "model_state_dict")
POLICIES: tuple[dict[str, str], ...] = (
    {"param_dtype": "bfloat16"},
    {"param_dtype": "bfloat16", "reduce_dtype": "float32"},
    {"reduce_dtype": "bfloat16"},
    {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16", "output_dtype": "float32"},
)


def rarely(other: Any, strategy: Any, one_in: int) -> Any:
    """Return a strategy for `other`, but for one draw in so many."""
    return st.integers(1, one_in).flatmap(lambda n: strategy if n == one_in else st.just(other))


BLOCK = st.integers(0, 5)
flag = st.booleans()


@st.composite
def blocks(draw: Draw, compilers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Draw 2 to 6 blocks, and how each is sharded: by itself, with the next, or with the root."""
    drawn = []
    for i in range(draw(st.integers(2, 6))):
        block: dict[str, Any] = {
            "kind": draw(st.sampled_from(KINDS)),
            "shard": draw(st.sampled_from(("own",) * 6 + ("with next", "with root"))),
            "reshard": draw(rarely(None, st.sampled_from((True, False, 2)), 4)),
            "frozen": draw(rarely(False, st.just(True), 8)),
            "checkpoint": draw(
                rarely(None, st.sampled_from(("inside", "around", "inside reentrant", "around reentrant")), 4)
            ),
            "hook": draw(rarely(None, st.sampled_from(HOOKS), 4)),
            "unshard_in_backward": draw(rarely(True, st.just(False), 2)),  # heeded by blocks of kind "bias"
            "list": draw(rarely(None, st.tuples(st.sampled_from(("forward", "backward")), BLOCK), 8)),
            "same_as": draw(rarely(None, st.integers(0, i - 1), 12)) if i else None,
            "tied_to_previous": draw(rarely(False, st.just(True), 12)),
            "compiled": draw(st.sampled_from((None, *compilers))) if compilers else None,
        }
        drawn.append(block)
    return [without_a_crash(block, before) for before, block in zip([None, *drawn], drawn, strict=False)]


def without_a_crash(block: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return the block as plain FSDP2 can train it.

    A checkpoint around one of two blocks that are sharded together, or a reentrant one inside, ends torch
    2.15 by a segmentation fault in the backward, without enable() as with it. There are rarer ways to end it:
    see Ranks.run.
    """
    together = block["shard"] == "with next" or (before is not None and before["shard"] == "with next")
    return {**block, "checkpoint": "inside"} if together and block["checkpoint"] else block


order = st.lists(BLOCK, min_size=1, max_size=6)
forward_of = st.fixed_dictionaries(
    {
        "order": rarely(None, order, 3),
        "raise": rarely(None, st.tuples(st.sampled_from(("after", "in", "before")), BLOCK).map(list), 8),
        # Before this block the weights of all blocks change, on all ranks.
        "write": rarely(None, st.tuples(st.sampled_from(("whole", "to_local")), BLOCK).map(list), 8),
    }
)


def step(op: str, **fields: Any) -> Any:
    """Return a strategy for steps of this name."""
    return st.fixed_dictionaries({"op": st.just(op), **fields})


# How many of a hundred steps are of each name, about.
STEPS = {
    "train": (
        24,
        step(
            "train",
            forward=forward_of,
            backward=rarely(True, st.just(False), 6),
            **{"raise": rarely(None, BLOCK, 5)},
            optimizer=rarely(True, st.just(False), 4),
            zero=rarely(True, st.just(False), 4),
        ),
    ),
    "forward": (12, step("forward", forward=forward_of, mode=st.sampled_from(MODES))),
    "backward": (
        10,
        step(
            "backward",
            of=st.sampled_from(("last", "first", "all")),
            **{"raise": rarely(None, BLOCK, 3)},
            retain=rarely(False, st.just(True), 8),
        ),
    ),
    "optimizer": (8, step("optimizer", scaler=rarely(None, st.sampled_from(("finite", "inf")), 5))),
    "load": (8, step("load", how=st.sampled_from(LOADS))),
    "zero_grad": (5, step("zero_grad", to_none=flag)),
    "part": (5, step("part", block=BLOCK, early=rarely(False, st.just(True), 8), train=flag)),
    "grad_of_input": (4, step("grad_of_input")),
    "clip": (3, step("clip")),
    "read": (3, step("read")),
    "sync": (2, step("sync", on=flag)),
    "last_backward": (2, step("last_backward", on=flag)),
    "reshard_after_backward": (2, step("reshard_after_backward", on=flag)),
    "all_reduce": (2, step("all_reduce", on=flag)),
    "unshard": (3, step("unshard", block=BLOCK, wait=flag)),
    "reshard": (3, step("reshard", block=BLOCK)),
    "freeze": (2, step("freeze", block=BLOCK, on=flag)),
    "reset_iter_state": (1, step("reset_iter_state")),
    "eval": (1, step("eval", on=flag)),
}
# By name: st.one_of would take each of its strategies once, however often it is given.
one_step = st.sampled_from([name for name, (weight, _) in STEPS.items() for _ in range(weight)]).flatmap(
    lambda name: STEPS[name][1]
)
some_steps = st.lists(one_step, min_size=1, max_size=12)
# A part that is called before the whole is a root to FSDP2, which refuses the whole afterwards.
part_first = st.tuples(step("part", block=BLOCK, early=st.just(True), train=flag)).map(list)
steps = st.tuples(rarely([], part_first, 25), some_steps, some_steps).map(
    lambda three: three[0] + three[1] + three[2]  # one list would be shorter
)


@st.composite
def programs(draw: Draw, ranks: int, compilers: tuple[str, ...] = ()) -> Program:
    """Draw a program for so many ranks; `compilers` are the backends that blocks may be compiled by."""
    return {
        "ranks": ranks,
        "seed": draw(st.integers(0, 999)),
        "width": draw(st.sampled_from((4, 8, 3, 17, 33))),
        "dtype": draw(rarely("float32", st.sampled_from(("float64", "bfloat16")), 6)),
        "blocks": draw(blocks(compilers)),
        "root": draw(rarely(True, st.just(False), 10)),
        "policy": draw(rarely(None, st.sampled_from(POLICIES), 5)),
        "replicas": draw(rarely(1, st.just(2), 5)) if ranks == 4 else 1,
        "offload": draw(rarely(False, st.just(True), 20)),
        "prefetch": draw(st.sampled_from((1, 2, 3, 0))),
        "defer": draw(rarely("auto", st.just(False), 6)),
        "enable_late": draw(rarely(False, st.just(True), 10)),
        "optimizer": draw(st.sampled_from(("sgd", "adamw"))),
        "input_needs_grad": draw(flag),
        "late": draw(st.sampled_from(("reduce", "gather", "both", ""))),
        "gloo": draw(rarely(False, st.just(True), 8)),
        "steps": draw(steps),
    }
