#!/usr/bin/env bash
# Compares NCCL over the plugin with NCCL over its own Socket: on a testbed of this
# machine where the rig is (NCCL's host code without a GPU, NCCL_RIG=DIR), or on GPUs
# with nccl-tests. Says in a line what is missing and ends with 77 then. --help lists the options.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
	echo "missing: python3, or set PYTHON" >&2
	exit 77
fi
exec "$python" "$here/compare.py" "$@"
