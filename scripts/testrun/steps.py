"""The steps of the tests, and which tier has which: docs/project/testing.md says the same in a table."""

from __future__ import annotations

from pathlib import Path

from .run import Step

# Packages that start no goroutine. There the race detector finds nothing, and the protocol's invariants do.
PURE = tuple((Path(__file__).parent / "pure.txt").read_text().split())
# Under the detector these take minutes that find nothing more.
SHORT_RACE = ("./internal/lab/sim/search", "./internal/lab/testbed/faults")
# Those with files named links_test.go.
LINKS = (
    "./cmd/mcast",
    "./internal/doctor/examine",
    "./internal/doctor/survey",
    "./internal/lab/testbed/diagnosis",
    "./internal/lab/testbed/faults",
    "./internal/lab/testbed/troubles",
)
_GO = ("-vet=off", "-timeout=90m")

STEPS = {
    "go": Step("the Go tests, with sockets, and as root with namespaces", "go", (*_GO, "./...")),
    "go-short": Step("those that neither wait nor search for long", "go", ("-short", *_GO, "./...")),
    "python": Step(
        "the Python tests of the product, with a training by FSDP2",
        "pytest",
        ("scripts/python-tests", "-m", "not more"),
    ),
    "check": Step(
        "formatting, vet, linters, plain words, arm64",
        "plain",
        ("make", "--no-print-directory", "check"),
        nice=10,
    ),
    "figures-mutants": Step(
        "planted changes that the check of the papers' figures must find",
        "plain",
        ("scripts/figures-mutants",),
    ),
    "check-py": Step(
        "types of the Python package", "plain", ("make", "--no-print-directory", "check-py"), nice=10
    ),
    "docs": Step("the documents as a site", "plain", ("make", "--no-print-directory", "docs"), nice=10),
    "pure": Step(
        "protocol and simulator, whole searches, with invariants and checks of unsafe pointers",
        "go",
        ("-tags=invariants", "-gcflags=./...=-d=checkptr", *_GO, *PURE),
        long=True,
    ),
    "race": Step(
        "all other Go tests under the race detector",
        "go",
        ("-race", "-parallel=8", *_GO, "./..."),
        without=(*PURE, *SHORT_RACE),
    ),
    "race-short": Step(
        "the search for seeds and the catalogue of faults under the race detector, a tenth of each",
        "go",
        ("-race", "-short", *_GO, *SHORT_RACE),
    ),
    "world": Step(
        "groups in virtual time give the same bits in every run: 100 of them",
        "go",
        ("-run=^TestSameBits$", *_GO, "./internal/lab/world", "-args", "-runs", "100"),
    ),
    "conformance": Step(
        "NCCL's view of the library, sanitizers, mutants, hostile peers", "plain", ("scripts/conformance",)
    ),
    "links": Step(
        "doctor, troubles and faults on real links of a testbed, one package after another",
        "go",
        ("-tags=links", "-p=1", "-count=1", *_GO, *LINKS),
    ),
    "tutorials": Step(
        "the commands of README and of the tutorials, and what they print", "plain", ("scripts/tutorials",)
    ),
    "gpu-kit": Step(
        "the folder for a machine with a GPU, run here without one", "plain", ("scripts/gpu-kit", "--try")
    ),
    "rdma": Step("tests over RDMA devices, in a guest with soft-RoCE", "plain", ("scripts/rdma-test",)),
    "python-more": Step(
        "torch's own suite, NCCL, CUDA tensors, launchers, demo",
        "pytest",
        ("scripts/python-tests", "-m", "more"),
    ),
    "launchers": Step(
        "the example under every launcher", "plain", ("make", "--no-print-directory", "launchers")
    ),
    "faults": Step(
        "the rows of the catalogue of faults that every change must keep",
        "plain",
        ("bin/mcast-lab", "testbed", "faults", "--quick"),
    ),
}

# A tier is phases, a phase lanes that run beside each other, a lane steps one after another.
TIERS: dict[str, list[list[list[str]]]] = {
    "quick": [[["go-short"]]],
    "test": [[["go"], ["python"]]],
    "rest": [
        [["links", "tutorials", "rdma"]],  # network tests and emulators have the processors for themselves
        [
            ["race", "race-short", "pure", "world", "gpu-kit"],
            ["check", "figures-mutants", "check-py", "docs", "conformance", "python-more"],
        ],
    ],
}
