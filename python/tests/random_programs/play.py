"""Runs programs on a rank: without enable() and with it, from the same state, and compares the results."""

from __future__ import annotations

import functools
import gc
import itertools
import warnings
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fully_shard

import torch_mcast.fsdp
from tests.situations import local
from torch_mcast.param_groups import param_groups

from . import faults
from .draw import Program, Step
from .late import late
from .model import Planned, build, fsdp_modules

Seen = tuple[str, list[torch.Tensor]]  # when and what; no tensors: what was raised


def prepare() -> None:
    """Make this process ready for many programs."""
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 64  # blocks of many kinds share their code
    private: Any = _fully_shard
    of_torch = private._get_post_forward_mesh_info
    kept: dict[Any, Any] = {}

    def once(reshard: bool | int, mesh_info: Any) -> Any:
        """Make the groups of reshard_after_forward=2 once: those of each program would stay for ever."""
        key = (reshard, mesh_info.mesh)
        if key not in kept:
            kept[key] = of_torch(reshard, mesh_info)
        return kept[key]

    private._get_post_forward_mesh_info = once
    gc.collect()
    gc.freeze()


@functools.cache
def mesh_of(backend: str, replicas: int) -> DeviceMesh:
    """Return the mesh of all ranks, one row a replica, over groups of this backend."""
    size = dist.get_world_size()
    rows = torch.arange(size).view(replicas, size // replicas)
    if replicas == 1:
        group: Any = dist.new_group(backend=backend)
        return DeviceMesh.from_group(group, "cpu")
    mine: list[Any] = []
    for ways in (rows.T, rows):  # replicas, shards
        for ranks in ways.tolist():
            group = dist.new_group(ranks, backend=backend)
            if dist.get_rank() in ranks:
                mine.append(group)
    return DeviceMesh.from_group(mine, "cpu", mesh=rows, mesh_dim_names=("replicate", "shard"))


def is_gathered(module: Any) -> bool:
    """Say whether a module's whole weights are there, or on their way."""
    return any(group.is_unsharded or group._all_gather_result is not None for group in param_groups(module))


class Play:
    """One run of a program. `seen` holds everything that a script could have seen in it."""

    def __init__(self, program: Program, backend: str, enabled: bool) -> None:
        self.program = program
        self.enabled = enabled
        self.seen: list[Seen] = []
        self.refused = ""
        self.at = -1  # the step's number
        self.raised_in_backward = False
        self.losses: list[torch.Tensor] = []
        self.net = build(program, mesh_of(backend, program["replicas"]))
        self.parameters = list(self.net.parameters())
        self.roots: list[Any] = [self.net] if program["root"] else fsdp_modules(self.net)
        self.hook()
        kind = torch.optim.AdamW if program["optimizer"] == "adamw" else torch.optim.SGD
        self.optimizer = kind(self.parameters, lr=0.05)
        if not program["enable_late"]:
            self.enable()

    def enable(self) -> None:
        if self.enabled:
            self.enabled = False
            torch_mcast.fsdp.enable(
                self.net, prefetch=self.program["prefetch"], defer_reduce_scatter=self.program["defer"]
            )
            for module in fsdp_modules(self.net):
                state = module._get_fsdp_state()
                guesses = [vars(group).get("unshard") for group in param_groups(module)]
                ahead = [one._state for guess in guesses if guess for one in (*guess.ahead, *guess.behind)]
                assert state not in ahead, "a module gathers ahead for itself"

    def hook(self) -> None:
        def look(*_: object) -> None:
            self.note("hook", [p.grad for p in self.parameters])

        def as_numbers(*_: object) -> None:
            there = [p.grad for p in self.parameters if p.grad is not None]
            self.note("numbers", [torch.tensor(local(grad).double().numpy()) for grad in there])

        def scales(*_: object) -> None:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(0.5)

        def takes_away(*_: object) -> None:
            for p in self.parameters:
                p.grad = None

        def passed() -> None:
            self.note("gathered", [torch.tensor([is_gathered(module) for module in unneeded])])

        unneeded = self.net.unneeded
        if unneeded:
            self.net.passed = passed
        self.net.look = look
        hooks = {"module": look, "as numbers": as_numbers, "scales": scales, "takes away": takes_away}
        for block, spec in zip(self.net.blocks, self.program["blocks"], strict=True):
            if spec["hook"] in hooks:
                block.register_full_backward_hook(hooks[spec["hook"]])
            elif spec["hook"] == "parameter":
                for p in block.parameters():
                    if p.requires_grad:
                        p.register_post_accumulate_grad_hook(lambda p: self.note("hook", [p.grad]))

    def note(self, what: str, tensors: Any = ()) -> None:
        kept = [local(t).clone() for t in tensors if t is not None]
        self.seen.append((f"step {self.at}: {what}", kept))

    def read(self) -> None:
        self.note("gradients", [p.grad for p in self.parameters])
        self.note("weights", self.parameters)

    def run(self) -> None:
        """Take all steps, then look at the remaining state. An unplanned exception ends the program."""
        end = [{"op": "read"}, {"op": "forward", "mode": "no_grad", "forward": PLAIN}]
        steps = [*self.program["steps"], *end]
        try:
            for self.at, step in enumerate(steps):
                try:
                    getattr(self, f"do_{step['op']}")(step)
                except Planned as e:
                    self.note(f"raised {e}")
                if self.at == 0:
                    self.enable()
        except Exception as e:
            self.note(f"ended by {type(e).__name__}")
            self.ended = e

    ended: Exception | None = None

    # Steps, one method each.

    def do_train(self, step: Step) -> None:
        self.do_forward({"forward": step["forward"], "mode": "train"})
        if step["backward"]:
            self.do_backward({"of": "last", "raise": step["raise"], "retain": False})
        self.note("gradients", [p.grad for p in self.parameters])
        if step["optimizer"]:
            self.optimizer.step()
        if step["zero"]:
            self.optimizer.zero_grad()

    def input(self) -> torch.Tensor:
        seed = 1009 * self.program["seed"] + 31 * self.at + dist.get_rank()
        generator = torch.Generator().manual_seed(seed)
        dtype = getattr(torch, self.program["dtype"])
        x = torch.randn(2, self.program["width"], generator=generator).to(dtype)
        # Of dropout. torch.manual_seed would also note a stack for each kind of GPU, an eighth of all time.
        torch.default_generator.manual_seed(seed)
        return x.requires_grad_(self.program["input_needs_grad"])

    def recover(self) -> None:
        """Reset FSDP2 after a backward that raised: it would compute with weights that it keeps gathered."""
        if self.raised_in_backward:
            self.raised_in_backward = False
            self.do_reset_iter_state({})

    def do_forward(self, step: Step) -> None:
        self.recover()
        x, mode, net = self.input(), step["mode"], self.net
        order = step["forward"]["order"]
        order = range(len(net.blocks)) if order is None else [i % len(net.blocks) for i in order]
        raises, write = step["forward"]["raise"], step["forward"]["write"]
        if raises is not None:
            raises = (raises[0], raises[1] % len(net.blocks))
        if write is not None:
            net.write = partial(self.write, write[0])
        if mode == "inference" and not self.initialized():
            mode = "no_grad"  # FSDP2 would make its shards then, inference tensors which nothing may write to
        within = {"train": nullcontext, "inference": torch.inference_mode}.get(mode, torch.no_grad)
        training = net.training
        if mode == "eval":
            net.eval()
        try:
            with within():
                out = net(x, list(order), raises, None if write is None else write[1] % len(net.blocks))
        finally:
            net.train(training)
        self.note("output", [out])
        if mode == "train" and out.requires_grad:
            self.losses.append(out.float().pow(2).mean())

    def write(self, how: str) -> None:
        shards = set(map(id, self.parameters))
        with torch.no_grad():
            for p in self.net.blocks.parameters():
                # Else it is a copy: of the whole weights, or of a half after reshard_after_forward=2.
                if id(p) in shards and hasattr(p, "to_local"):
                    (p if how == "whole" else p.to_local()).mul_(0.875)

    def do_backward(self, step: Step) -> None:
        self.recover()
        if not self.losses:
            return
        if step["of"] == "all":
            loss, self.losses = torch.stack(self.losses).sum(), []
        else:
            loss = self.losses.pop(-1 if step["of"] == "last" else 0)
        if step["raise"] is not None:
            self.net.raises_in_backward = step["raise"] % len(self.net.blocks)
        try:
            loss.backward(retain_graph=step["retain"])
            if step["retain"]:
                loss.backward()
        except Planned:
            self.raised_in_backward = True
            raise
        finally:
            self.net.raises_in_backward = -1
            self.note("gradients", [p.grad for p in self.parameters])

    def do_optimizer(self, step: Step) -> None:
        if step["scaler"] is None:
            self.optimizer.step()
            return
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale(torch.ones(1))
        if step["scaler"] == "inf":
            for p in self.parameters:
                if p.grad is not None:
                    local(p.grad).fill_(torch.inf)
        if any(p.grad is not None for p in self.parameters):
            scaler.step(self.optimizer)
            scaler.update()
        self.note("weights", self.parameters)

    def do_zero_grad(self, step: Step) -> None:
        self.optimizer.zero_grad(set_to_none=step["to_none"])

    def do_clip(self, _: Step) -> None:
        self.note("norm", [nn.utils.clip_grad_norm_(self.parameters, 0.1)])

    def do_read(self, _: Step) -> None:
        self.read()

    def do_load(self, step: Step) -> None:
        how = step["how"]
        with torch.no_grad():
            if how in ("to_local", "data"):
                for p in self.parameters:
                    part: torch.Tensor = p.to_local() if hasattr(p, "to_local") else p
                    (part.data if how == "data" else part).mul_(0.5).add_(0.125)
            elif how == "state_dict":
                self.net.load_state_dict({name: t * 0.75 for name, t in self.net.state_dict().items()})
            else:
                options = StateDictOptions(full_state_dict=True)
                weights: dict[str, Any] = get_model_state_dict(self.net, options=options)
                loaded = {name: t * 0.75 for name, t in weights.items()}
                set_model_state_dict(self.net, loaded, options=options)

    def do_sync(self, step: Step) -> None:
        for root in self.roots:
            root.set_requires_gradient_sync(step["on"])

    def do_last_backward(self, step: Step) -> None:
        for root in self.roots:
            root.set_is_last_backward(step["on"])

    def do_reshard_after_backward(self, step: Step) -> None:
        for root in self.roots:
            root.set_reshard_after_backward(step["on"])

    def do_all_reduce(self, step: Step) -> None:
        for root in self.roots:
            root.set_requires_all_reduce(step["on"])

    def initialized(self) -> bool:
        return all(root._get_fsdp_state()._is_root is not None for root in self.roots)

    def block(self, step: Step) -> Any:
        return self.net.blocks[step["block"] % len(self.net.blocks)]

    def do_unshard(self, step: Step) -> None:
        block = self.block(step)
        if hasattr(block, "unshard"):
            handle = block.unshard(async_op=True)
            if step["wait"]:
                handle.wait()

    def do_reshard(self, step: Step) -> None:
        block = self.block(step)
        if hasattr(block, "reshard"):
            block.reshard()

    def do_freeze(self, step: Step) -> None:
        self.block(step).requires_grad_(not step["on"])

    def do_part(self, step: Step) -> None:
        if not (step["early"] or self.initialized()):
            return  # FSDP2 takes a part that is called first for a root, and refuses the whole afterwards
        self.recover()
        with nullcontext() if step["train"] else torch.no_grad():
            out = self.block(step)(self.input())
        self.note("part", [out])
        if out.requires_grad:
            self.losses.append(out.float().pow(2).mean())

    def do_grad_of_input(self, _: Step) -> None:
        if any((spec["checkpoint"] or "").endswith("reentrant") for spec in self.program["blocks"]):
            return  # torch refuses it
        self.recover()
        x = self.input().detach().requires_grad_()
        out = self.net(x, list(range(len(self.net.blocks))), None, None)
        self.note("gradient of the input", torch.autograd.grad(out.float().pow(2).mean(), [x]))

    def do_reset_iter_state(self, _: Step) -> None:
        self.losses.clear()
        if self.initialized():  # before that FSDP2 has no state to reset
            for root in self.roots:
                root.reset_iter_state()

    def do_eval(self, step: Step) -> None:
        self.net.train(not step["on"])


PLAIN = {"order": None, "raise": None, "write": None}


def play(program: Program, backend: str, enabled: bool, fault: str = "") -> Play:
    """Run the program once."""
    if any(spec["compiled"] for spec in program["blocks"]):
        torch._dynamo.reset()
    with faults.planted(fault) if enabled else nullcontext(), late(program["late"] if enabled else ""):
        run = Play(program, backend, enabled)
        run.run()
    return run


def plainly(program: Program) -> None:
    """Run the program without anything of ours."""
    play(program, "gloo", False)


def difference(plain: list[Seen], other: list[Seen], bound: float = 0.0) -> str:
    """Say where two runs differ first, or return "". By bits, or with a bound by at most so much."""
    for (when, a), (now, b) in zip(plain, other, strict=False):
        if when != now or len(a) != len(b):
            return f"{when}, {len(a)} tensors: not {now}, {len(b)} tensors"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if x.shape != y.shape or x.dtype != y.dtype:
                return f"{when} {i}: {x.dtype} {tuple(x.shape)}, not {y.dtype} {tuple(y.shape)}"
            if bound:
                if not torch.allclose(x.double(), y.double(), rtol=bound, atol=bound, equal_nan=True):
                    return f"{when} {i}: {x.flatten()[:4].tolist()}, not {y.flatten()[:4].tolist()}"
            elif not torch.equal(bits(x), bits(y)):
                at = int((bits(x) != bits(y)).nonzero()[0, 0]) // x.element_size()
                return f"{when} {i}, element {at}: {x.flatten()[at].item()}, not {y.flatten()[at].item()}"
    if len(plain) != len(other):
        return f"{len(plain)} observations, not {len(other)}: last {plain[-1][0]}, not {other[-1][0]}"
    return ""


def one_nan(seen: list[Seen]) -> list[Seen]:
    """Return what was seen, with the same bits for all that is not a number: backends choose others."""
    return [(when, [x.masked_fill(x.isnan(), float("nan")) for x in tensors]) for when, tensors in seen]


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bits; as bits, not-a-number equals itself."""
    return x.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)  # may be expanded


_compared = itertools.count(1)
BOUNDS = {"float32": 2e-3, "float64": 1e-9, "bfloat16": 0.1}


def compare(program: Program, fault: str = "") -> dict[str, Any]:
    """Run the program without enable() and with it; return what differs on this rank, and how it went."""
    plain = play(program, "mcast", False)
    ours = play(program, "mcast", True, fault)
    found = [f"enable(): {d}"] if (d := difference(plain.seen, ours.seen)) else []
    if found and ours.ended is not None:
        found[0] += f" ({type(ours.ended).__name__}: {ours.ended})"
    if program["gloo"]:
        over_gloo = play(program, "gloo", False)
        enabled = play(program, "gloo", True, fault)
        if d := difference(over_gloo.seen, enabled.seen):
            found.append(f"enable() over gloo: {d}")
        exact = dist.get_world_size() == 2
        bound = 0.0 if exact else BOUNDS["bfloat16" if program["policy"] else program["dtype"]]
        if d := difference(one_nan(over_gloo.seen), one_nan(plain.seen), bound):
            found.append(f"mcast, not gloo: {d}")
    if next(_compared) % 10 == 0:
        gc.collect()  # models are circles; each time it would be a tenth of a program's time
    return {
        "differences": found,
        "observations": len(plain.seen),
        "ended": "" if plain.ended is None else f"{type(plain.ended).__name__}: {plain.ended}",
    }
