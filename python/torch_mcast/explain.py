"""Which collectives of a training step were exposed, module by module, and what would hide them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from .timeline import Event, Kind, Span, Wait, length, summarize, union

Cause = Literal[
    "gloo",
    "few-prefetches",
    "first-gather",
    "blocked-reduce",
    "network-bound",
    "small-messages",
    "uneven-shards",
]

# A part of the step. Less is not worth a change, and waits of a busy host come to about as much.
_MATTERS = 0.05
_SMALL = 64 << 10  # bytes of a rank's shard: below, an Allgather takes as long as delays of network and hosts
_MANY = 8  # collectives: from so many on a median means something
_PADDED = 0.10  # of the sent elements are padding
_BOUND = 0.9  # of the step a kind is in flight: there is nothing left to hide it behind
# What helps, by how the reason begins for which a Reduce-Scatter was not left in flight.
_DEFERS = {
    "defer_reduce_scatter=False": 'enable(defer_reduce_scatter="auto")',
    "gradient accumulation": "zero_grad() before each backward, or set_requires_gradient_sync(False) in all but "
    "the last of a step",
    "the sum is divided afterwards: SUM": "set_force_sum_reduction_for_comms(False)",
    "the sum is divided afterwards: reduced": "MixedPrecisionPolicy(reduce_dtype=torch.float32)",
    "the result is cast": "MixedPrecisionPolicy with the parameters' dtype as reduce_dtype",
}


@dataclass(frozen=True)
class Shards:
    """How the parameters of a module are cut.

    Attributes:
        elements: of all parameters.
        padded: elements that ranks send of them, padding included, all ranks together.
        ranks: how many there are.
        parameters: how many; none can be gathered in parts.
    """

    elements: int
    padded: int
    ranks: int
    parameters: int = 0

    @property
    def padding(self) -> float:
        """The part of the sent elements that is padding."""
        return 1 - self.elements / max(self.padded, 1)


@dataclass(frozen=True)
class Setup:
    """What a model was enabled with.

    Attributes:
        prefetch: modules that are gathered ahead.
        backend: of the group that gathers, such as "mcast".
        on_gpu: waits are those of streams, which the host does not see.
        reasons: why Reduce-Scatters were waited for at once, by module.
        shards: by module.
    """

    prefetch: int
    backend: str
    on_gpu: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)
    shards: Mapping[str, Shards] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """The collectives of one kind of a module; times are seconds, in all.

    Attributes:
        module: its name, "" is the root.
        kind: "allgather" or "reduce_scatter".
        count: how many there were.
        nbytes: of this rank's shard, in the mean.
        in_flight: from their posting to their end.
        exposed: for which the training stood and waited for them.
    """

    module: str
    kind: Kind
    count: int
    nbytes: int
    in_flight: float
    exposed: float


@dataclass(frozen=True)
class Finding:
    """What makes a step longer than it could be.

    Attributes:
        cause: short and always the same.
        modules: the modules that it is about, most exposed first; empty: all.
        what: it in a sentence, with figures.
        remedy: what would help.
        gain: by which part the step would be shorter at most, if that helped fully.
    """

    cause: Cause
    modules: tuple[str, ...]
    what: str
    remedy: str
    gain: float


@dataclass(frozen=True)
class Explanation:
    """Where a stretch of training went; printed, a table and what would help.

    Attributes:
        span: its seconds.
        exposed: the part of the span in which the training waited for collectives.
        layers: most exposed first.
        findings: greatest gain first; empty if nothing is worth a change.
    """

    span: float
    exposed: float
    layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        """Return the ten most exposed kinds and modules, and the findings."""
        lines = [
            f"{self.exposed:.0%} of {self.span:.3f} s were waits for collectives",
            f"{'exposed':>9}  {'in flight':>9}  {'count':>5}  {'KiB a rank':>10}  kind, module",
        ]
        lines += [
            f"{1e3 * x.exposed:6.1f} ms  {1e3 * x.in_flight:6.1f} ms  {x.count:5d}  {x.nbytes / 1024:10.1f}  "
            f"{x.kind} {x.module or '(root)'}"
            for x in self.layers[:10]
        ]
        for f in self.findings:
            whose = ", ".join(m or "(root)" for m in f.modules[:4]) + (", ..." if len(f.modules) > 4 else "")
            lines += ["", f"{f.cause}{': ' + whose if whose else ''} (up to {f.gain:.0%} of the step)"]
            lines += [f"  {f.what}", f"  Helps: {f.remedy}"]
        if not self.findings and self.exposed < _MATTERS:
            lines.append("No trouble was found.")
        elif not self.findings:
            lines.append(
                "Nothing here would hide them: see mcast explain for ranks, links and hosts that are late."
            )
        return "\n".join(lines)


def explain(
    events: Iterable[Event], waits: Iterable[Wait], start: float, end: float, setup: Setup
) -> Explanation:
    """Explain what lies between start and end (seconds of time.perf_counter())."""
    events = [e for e in events if e.end > start and e.start < end]
    waits = [w for w in waits if w.end > start and w.start < end]
    span = max(end - start, 1e-9)
    spent = summarize(events, waits, start, end)
    layers = _layers(events, waits)
    exposed = (spent.span - spent.compute) / span
    found: list[Finding] = []
    if setup.backend == "gloo":
        found.append(
            Finding(
                "gloo",
                (),
                f"collectives go over gloo, which sends each shard to each rank; the step waits for "
                f"{exposed:.0%}",
                'init_process_group("mcast"), or enable(model, group=a group of backend "mcast")',
                exposed,
            )
        )
    found += _uneven(setup, spent.allgather_in_flight / span)
    if not setup.on_gpu:
        found += _gathers(events, waits, layers, setup, start, end, exposed if found else 0.0)
        found += _reductions(layers, setup, spent.exposed_reduce_scatter / span)
    return Explanation(span, exposed, tuple(layers), tuple(sorted(found, key=lambda f: -f.gain)))


def _layers(events: list[Event], waits: list[Wait]) -> list[Layer]:
    layers = []
    for module, kind in sorted({(e.module, e.kind) for e in events}):
        of = [e for e in events if (e.module, e.kind) == (module, kind)]
        waited = union((w.start, w.end) for w in waits if (w.module, w.kind) == (module, kind))
        nbytes = sum(e.nbytes for e in of) // len(of)
        layers.append(Layer(module, kind, len(of), nbytes, sum(e.end - e.start for e in of), length(waited)))
    return sorted(layers, key=lambda x: -x.exposed)


def _gathers(
    events: list[Event],
    waits: list[Wait],
    layers: list[Layer],
    setup: Setup,
    start: float,
    end: float,
    known: float,
) -> list[Finding]:
    """Say what would hide the Allgathers that were waited for."""
    span = end - start
    spent = summarize(events, waits, start, end)
    gathers = [e for e in events if e.kind == "allgather"]
    waited = [w for w in waits if w.kind == "allgather"]
    exposed = spent.exposed_allgather / span
    modules = tuple(x.module for x in layers if x.kind == "allgather" and x.exposed > 0)
    if exposed < _MATTERS or not gathers or known:
        return []
    took = [_alone(e, gathers) for e in gathers]
    if len(gathers) >= _MANY and median(e.nbytes for e in gathers) < _SMALL:
        return [
            Finding(
                "small-messages",
                modules,
                f"{len(gathers)} Allgathers of {median(e.nbytes for e in gathers) / 1024:.1f} KiB a "
                f"rank: each takes "
                f"{1e3 * median(took):.2f} ms, which is delay and not bytes; the step waits "
                f"{exposed:.0%} for them",
                "fully_shard on larger modules (a block, not its layers), so that more is gathered at a time",
                exposed,
            )
        ]
    # Compute can hide as much as it takes itself; prefetching cannot hide the rest.
    hideable = max(0.0, spent.compute - _hidden(gathers, waited))
    gain = min(spent.exposed_allgather, hideable) / span
    if spent.allgather_in_flight / span > _BOUND and gain < _MATTERS:
        return [
            Finding(
                "network-bound",
                modules,
                f"Allgathers are in flight for {spent.allgather_in_flight / span:.0%} of the step, "
                f"which computes for "
                f"{spent.compute / span:.0%}: there is not enough compute to hide them behind",
                "more compute a step (a larger batch, gradient accumulation), fewer bytes "
                "(MixedPrecisionPolicy("
                "param_dtype=torch.bfloat16), reshard_after_forward=False), a faster link: see mcast explain",
                0.0,
            )
        ]
    first = max(waited, key=lambda w: w.end - w.start)
    if (
        _before(first.start, waited, start) < _MATTERS * span
        and first.end - first.start > 0.6 * spent.exposed_allgather
    ):
        if _once(first, waited):
            return []  # later steps begin with the same gather, and wait less: the ranks began apart
        smaller = (
            "a smaller first module (fully_shard on the embedding by itself), or "
            if _divides(first.module, setup)
            else ""
        )
        return [
            Finding(
                "first-gather",
                (first.module,),
                f"the step begins with an Allgather of {first.module or '(root)'} with nothing to "
                f"compute before it, "
                f"and waits {1e3 * (first.end - first.start):.1f} ms for it, the longest wait of all",
                f"{smaller}data loading after model.unshard(async_op=True) of that module",
                (first.end - first.start) / span,
            )
        ]
    compute = spent.compute / max(len(gathers), 1)
    ahead = min(8, max(1, math.ceil(median(took) / max(compute, 1e-9))))
    if gain < _MATTERS or ahead <= setup.prefetch:
        return []  # they begin early enough: it is other ranks, or the network now and then, that are late
    return [
        Finding(
            "few-prefetches",
            modules,
            f"the step waits {exposed:.0%} for Allgathers of {1e3 * median(took):.1f} ms each in the "
            f"median, computes "
            f"{1e3 * compute:.1f} ms to each, and gathers {setup.prefetch} module(s) ahead",
            f"enable(model, prefetch={ahead}); each takes the memory of one more unsharded module",
            gain,
        )
    ]


def _reductions(layers: list[Layer], setup: Setup, exposed: float) -> list[Finding]:
    """Say why Reduce-Scatters were waited for that might have been left in flight."""
    if exposed < _MATTERS or not setup.reasons:
        return []
    modules = tuple(x.module for x in layers if x.kind == "reduce_scatter" and x.module in setup.reasons)
    if not modules:
        return []
    why = sorted({setup.reasons[m] for m in modules})
    helps = [text for begin, text in _DEFERS.items() if any(reason.startswith(begin) for reason in why)]
    return [
        Finding(
            "blocked-reduce",
            modules,
            f"the step waits {exposed:.0%} for Reduce-Scatters that could not be left in flight: "
            f"{'; '.join(why)}",
            "; ".join(helps) or "a model without these causes",
            exposed,
        )
    ]


def _uneven(setup: Setup, in_flight: float) -> list[Finding]:
    """Find modules with shards that are mostly padding."""
    whole = sum(s.padded for s in setup.shards.values())
    wasted = whole - sum(s.elements for s in setup.shards.values())
    if whole == 0 or wasted / whole < _PADDED:
        return []
    worst = sorted(
        (m for m, s in setup.shards.items() if s.padding >= _PADDED),
        key=lambda m: setup.shards[m].elements - setup.shards[m].padded,
    )
    ranks = max(s.ranks for s in setup.shards.values())
    return [
        Finding(
            "uneven-shards",
            tuple(worst),
            f"{wasted / whole:.0%} of the gathered and reduced elements are padding, since dimension 0 of "
            f"parameters does "
            f"not divide by {ranks} ranks: the last ranks hold little or nothing of them",
            "fully_shard(..., shard_placement_fn=lambda p: Shard(1)) where that dimension divides, or "
            "sizes that do",
            in_flight * wasted / whole,
        )
    ]


def _divides(module: str, setup: Setup) -> bool:
    """Say whether a module could be sharded in parts of which the first is worth it."""
    own = setup.shards.get(module)
    if own is None:
        return True  # it is not known
    return own.parameters != 1 and own.elements > min(s.elements for s in setup.shards.values())


def _alone(event: Event, others: list[Event]) -> float:
    """Return how long a collective took once those before it had ended: lanes do one after another."""
    before = max((e.end for e in others if e.end < event.end), default=event.start)
    return event.end - max(event.start, before)


def _hidden(gathers: list[Event], waited: list[Wait]) -> float:
    """Return for how long an Allgather was in flight and nobody waited."""
    return max(0.0, length(union(_spans(gathers))) - length(union(_spans(waited))))


def _spans(of: Iterable[Event] | Iterable[Wait]) -> list[Span]:
    return [(x.start, x.end) for x in of]


def _once(wait: Wait, waited: list[Wait]) -> bool:
    """Say whether later waits for the same module come to less than half of this one."""
    later = [w.end - w.start for w in waited if w.module == wait.module and w.start > wait.start]
    return bool(later) and max(later) < 0.5 * (wait.end - wait.start)


def _before(at: float, waited: list[Wait], start: float) -> float:
    """Return what was computed before a moment."""
    return at - start - length(union((w.start, min(w.end, at)) for w in waited))
