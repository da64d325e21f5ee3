# `make` alone says what there is. Every target is safe to run again.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
LINT_VERSION := v2.15.0
LINT := .tools/bin/golangci-lint-$(LINT_VERSION)
RUFF := .tools/ruff/.stamp
NCCL := .tools/nccl/.stamp
DOCS := .tools/docs/.stamp

# Go wants it for its caches; cron and some containers leave it out.
HOME ?= $(shell getent passwd "$$(id -u)" | cut -d: -f6)
export HOME

# Passed through to the demo: share of datagrams to lose, training steps.
LOSS ?=
STEPS ?=
# For `make soak`, `make fuzz`, `make bench-peers`, `make bench-gpu`, `make bench-nccl` and `make bench-switch`.
OPERATIONS ?= 1000000
REPEAT ?= 20
FUZZTIME ?= 10s
# For `make compat`.
TORCH ?= 2.11.0
# For `make random`.
PROGRAMS ?= 1000
SEED ?= 0
# `make test ORDER=shuffled` draws another order each time.
ORDER ?=
ONLY ?=
PEERS ?=
SUITES ?= bookworm jammy resolute
GPU ?=
COMPARE ?=
ROUNDS ?= 5
# Where build leaves bin and lib.
OUT := .

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

COMMIT = -X github.com/torch-mcast/torch-mcast/internal/version.commit=$$(git describe --always --dirty 2>/dev/null)
build: toolchain ## bin/mcast, bin/mcast-lab, lib/libnccl-net-mcast.so (RCCL would look for the link beside it), lib/mcast.h
	go build -trimpath -ldflags "$(COMMIT)" -o $(OUT)/bin/ ./cmd/mcast ./cmd/mcast-lab
	@[ ! $(OUT)/lib/libnccl-net-mcast.so -ot ncclnet/exports.map ] || rm -f $(OUT)/lib/libnccl-net-mcast.so # go does not watch the map
	go build -trimpath -buildmode=c-shared -ldflags "$(COMMIT) '-extldflags=-Wl,--version-script=$(CURDIR)/ncclnet/exports.map'" \
		-o $(OUT)/lib/libnccl-net-mcast.so ./ncclnet
	rm -f $(OUT)/lib/libnccl-net-mcast.h
	ln -sf libnccl-net-mcast.so $(OUT)/lib/librccl-net-mcast.so
	cp ncclnet/mcast.h $(OUT)/lib/

build-arm64: ## the same for arm64, in build/arm64 (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)
	GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc $(MAKE) --no-print-directory build OUT=build/arm64

setup: toolchain $(VENV)/.stamp ## what build, test and demo need: a Python environment with torch

setup-all: toolchain ## what test-all needs as well: the linters, NCCL, what writes the documents
	@$(MAKE) --no-print-directory -j2 $(VENV)/.stamp $(LINT) $(RUFF) $(NCCL) $(DOCS)

nccl: $(NCCL) ## NCCL 2.20.5 and 2.21.5 from PyPI, which the tests have load the plugin

quick: toolchain ## the Go tests that neither wait nor search for long; needs neither root nor torch
	scripts/run-tests quick

test: setup build ## the Go and the Python tests of what users get, with real sockets and a real training (docs/project/testing.md)
	scripts/run-tests $(if $(filter shuffled,$(ORDER)),--shuffle) test

test-rest: setup-all build ## what test-all has beyond test
	scripts/run-tests rest

test-all: test test-rest ## all that a change must pass: also linters, types, documents, race detector, conformance, RDMA guest, CUDA stand-in
	$(MAKE) --no-print-directory compat TORCH=2.11.0

conformance: build ## NCCL's view of the library: every version of the ABI, with loss, under the sanitizers and the race detector; the harness's mutants; hostile peers
	scripts/conformance

launchers: setup build ## the example under torchrun, mpirun, Slurm and Ray Train, and the manifests for Kubernetes (root)
	for launcher in torchrun mpirun slurm ray kubernetes; do examples/$$launcher/run; done

frameworks: setup build ## a training with each framework of docs/how-to/frameworks.md, over gloo and over torch-mcast, compared; 2 GB in ~/.cache (ONLY="ray_train trl_sft")
	examples/frameworks/run $(ONLY)

rdma: build ## the tests that need RDMA devices, and CollNet over them, in a guest of QEMU with soft-RoCE (Debian 12, x86_64)
	scripts/rdma-test

check: toolchain $(LINT) $(RUFF) figures-check ## formatting, vet, linters, plain words, whether it builds for arm64, and figures-check; without torch
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted" >&2; exit 1; }
	go vet ./...
	go vet -tags invariants ./internal/protocol/...
	$(LINT) run --allow-parallel-runners ./...
	@! git grep -nE "nolint:[a-z,]*(gosec|gocritic|nilerr|forcetypeassert)" -- "*.go" || { echo "names a linter that is not enabled (.golangci.yml)" >&2; exit 1; }
	go test -count=1 ./internal/lab/prose
	GOARCH=arm64 CGO_ENABLED=0 go build ./internal/group ./internal/switchd ./internal/lab/sim/...
	cd python && ../.tools/ruff/bin/ruff check --config pyproject.toml . ../benchmarks ../packaging ../examples ../scripts/*.py ../scripts/testrun ../scripts/run-tests ../scripts/tutorials ../scripts/wheel-abi ../scripts/release-notes ../scripts/figures-mutants

figures-check: toolchain ## the papers' figures: do the documents, the committed rows and the code say the same? Half a minute (ONLY=fig12)
	go test -count=1 -run '^(TestCommitted|TestUnstamped)$$$(if $(ONLY),/^($(ONLY))$$)' ./internal/lab/sim/figures

figures-mutants: toolchain ## plant changes that figures-check must find, one after another, in a copy of the tree; minutes
	scripts/figures-mutants

check-py: $(VENV)/.stamp ## types of the Python package, which are torch's
	cd python && ../$(VENV)/bin/mypy && ../$(VENV)/bin/mypy ../examples/train.py

docs: $(DOCS) bin/mcast bin/mcast-lab ## the documents as a site, in build/site; a link or an anchor that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true .tools/docs/bin/python -m mkdocs build --strict --quiet

demo: $(VENV)/.stamp build ## train with FSDP2 on four hosts with limited links, over torch-mcast and over gloo, and compare; needs no root (LOSS=0.01, STEPS=20)
	LOSS="$(LOSS)" STEPS="$(STEPS)" $(PYTHON) benchmarks/fsdp/demo.py

soak: build ## OPERATIONS=1000000 of both protocols and of whole groups each on random bad networks; all of conformance; as root the catalogue of faults, REPEAT=20 times
	bin/mcast-lab sim soak --operations $(OPERATIONS)
	go test ./internal/lab/world -run '^TestSoak$$' -timeout 0 -args -seeds 0 -operations $(OPERATIONS) -state $(CURDIR)/build/world.json
	go test ./internal/lab/world -run '^TestSoak$$' -timeout 0 -args -switch -seeds 0 -operations $(OPERATIONS) -state $(CURDIR)/build/switches.json
	go test ./internal/lab/world -run '^TestPlantedBugs$$' -timeout 0 -args -planted
	scripts/conformance all
	[ "$$(id -u)" != 0 ] || bin/mcast-lab testbed faults --repeat $(REPEAT)

random: $(VENV)/.stamp build ## PROGRAMS=1000 of FSDP2 with enable() beside plain FSDP2, a tenth compiled, and ten times as many collectives, over shm and udp each
	cd python && for fabric in shm udp; do for ranks in 2 4; do \
		../.venv/bin/python -m tests.random_programs --programs $$(( $(PROGRAMS) / 2 )) --seed $(SEED) --fabric $$fabric --ranks $$ranks; \
		../.venv/bin/python -m tests.random_programs --programs $$(( $(PROGRAMS) / 20 )) --seed $(SEED) --fabric $$fabric --ranks $$ranks --compiled aot_eager; \
		../.venv/bin/python -m tests.random_collectives --programs $$(( $(PROGRAMS) * 5 )) --seed $(SEED) --fabric $$fabric --ranks $$ranks; \
	done; done

torch-fsdp: $(VENV)/.stamp build ## torch's own tests of FSDP2 over gloo and "mcast", with enable() and without, from the copy of torch's source that TORCH_SOURCE names
	cd python && TORCH_SOURCE=$(abspath $(TORCH_SOURCE)) ../.venv/bin/python -m pytest -m more tests/test_torch_fsdp_suite.py

compat: $(VENV)/.stamp build ## the tests of the backend over TORCH=2.11.0, which it puts into build/compat: a row of packaging/compat.ndjson and of its table
	$(PYTHON) packaging/check/compat.py $(TORCH)

fuzz: toolchain ## every fuzz target for FUZZTIME=10s
	FUZZTIME=$(FUZZTIME) scripts/fuzz

imports: toolchain ## draw which package imports which, by wings; fails if one imports from a higher wing
	@go run ./internal/lab/imports

bench-reduce: toolchain ## the sums beside a plain copy and what the memory allows
	go run ./internal/reduce/bench

bench-peers: build ## mcast bench beside OpenMPI, into benchmarks/results (PEERS="--rounds 5")
	python3 benchmarks/peers/peers.py $(PEERS)

bench-switch: $(VENV)/.stamp build ## Reduce-Scatter through a switch, directly and by gloo, into benchmarks/results (ROUNDS=5)
	$(PYTHON) benchmarks/switch/switch.py --rounds $(ROUNDS)

bench-gpu: $(VENV)/.stamp build ## CUDA tensors over mcast, gloo and NCCL on this host's GPUs, into benchmarks/results/gpu (GPU="--devices 0,1")
	benchmarks/gpu/run.sh $(GPU)

gpu-kit: toolchain ## build/gpu-kit: what benchmarks/gpu/prove.sh needs on a machine with torch and a GPU, at most 60 MiB
	scripts/gpu-kit

bench-nccl: build ## NCCL over the plugin beside its Socket on limited links (NCCL_RIG=DIR) or on GPUs, into benchmarks/results (COMPARE="--rounds 3")
	benchmarks/nccl/run.sh $(COMPARE)

release: toolchain ## wheel, sdist, .deb, .rpm, SBOM, notes and checksums, into dist (MACHINE=aarch64)
	scripts/release

install-check: ## what dist holds in fresh roots of SUITES="bookworm jammy resolute": the wheel trains, the switch runs under systemd (root, debootstrap, systemd-container)
	for suite in $(SUITES); do scripts/install-check $$suite; done

release-check: toolchain ## the release of this commit twice, in two folders: the same bits?
	scripts/release-check

clean: ## remove what build made
	rm -rf bin lib build dist

distclean: clean ## remove what setup made, too
	rm -rf $(VENV) .tools

toolchain:
	@scripts/toolchain

# Go tools and Python packages are fetched at the versions named here and in the requirements. The order of the two
# pip calls spares the second a build environment of its own. pip unpacks beside the result: so one disk must have
# room, and a small /tmp does no harm.
$(VENV)/.stamp: python/requirements-dev.txt python/pyproject.toml | toolchain
	@echo "Setting up $(VENV); torch is large, this takes some minutes once."
	@ls -d $(VENV)/lib/python*/site-packages/torch >/dev/null 2>&1 || df -Pk $(dir $(abspath $(VENV))) | awk 'NR == 2 && $$4 < 9 * 2^20 { \
		printf "$(VENV) needs 9 GiB of disk while it is set up, 6 afterwards; %.1f are free\n", $$4 / 2^20; exit 1 }' >&2
	python3 -m venv $(VENV)
	rm -rf $(VENV)/tmp && mkdir $(VENV)/tmp
	TMPDIR=$(abspath $(VENV))/tmp $(PYTHON) -m pip install --quiet --requirement python/requirements-dev.txt
	rm -rf $(VENV)/tmp
	$(PYTHON) -m pip install --quiet --no-build-isolation --no-deps --editable python
	@touch $@

$(LINT): | toolchain
	@echo "Building golangci-lint $(LINT_VERSION); this takes some minutes once."
	GOBIN=$(CURDIR)/.tools/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .tools/bin/golangci-lint $@

$(RUFF): python/requirements-dev.txt | toolchain
	python3 -m venv .tools/ruff
	.tools/ruff/bin/python -m pip install --quiet "$$(grep '^ruff==' $<)"
	@touch $@

$(DOCS): docs/requirements.txt
	python3 -m venv .tools/docs
	.tools/docs/bin/python -m pip install --quiet --requirement $<
	@touch $@

# What writes the manuals, where it is not built yet.
bin/mcast bin/mcast-lab &:
	@$(MAKE) --no-print-directory build

# pip comes from the environment.
$(NCCL): scripts/nccl | $(VENV)/.stamp
	PYTHON=$(PYTHON) scripts/nccl
	@touch $@

.PHONY: help build build-arm64 setup setup-all nccl quick test test-rest test-all conformance launchers frameworks rdma check figures-check figures-mutants check-py docs demo soak random torch-fsdp compat fuzz imports bench-reduce bench-peers bench-switch bench-gpu gpu-kit bench-nccl release install-check release-check clean distclean toolchain
