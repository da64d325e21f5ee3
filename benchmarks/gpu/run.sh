#!/usr/bin/env bash
# Runs collectives and FSDP2 on CUDA tensors over mcast, gloo and NCCL, on one or
# several GPUs. Needs the built library and a Python with torch; says in one line
# what is missing and ends with 77 then. run.sh --help lists the options.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-}
if [ -z "$python" ]; then
	python=$here/../../.venv/bin/python
	[ -x "$python" ] || python=python3
fi
if ! command -v "$python" >/dev/null; then
	echo "missing: a Python with torch: run \`make setup\`, or set PYTHON" >&2
	exit 77
fi
exec "$python" "$here/gpu.py" "$@"
