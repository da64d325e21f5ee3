#!/usr/bin/env bash
# What the cores of this machine move without a GPU: `mcast bench` at 4, 8 and 16 ranks.
#
#   cores.sh shm|udp FILE      appends rows, each as it is measured
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
fabric=$1 file=$2
cores=$(env -u OMP_NUM_THREADS nproc) # it would print that
for ranks in 4 8 16; do
	[ "$ranks" -le $((2 * cores)) ] || continue
	for collective in allgather reducescatter allreduce; do
		"$root/bin/mcast" bench "$collective" --fabric "$fabric" --ranks "$ranks" --bytes 1K,64K,1M,16M --json |
			tee -a "$file"
	done
done
# One rank alone a host: what one goroutine receives.
[ "$fabric" != udp ] || "$root/bin/mcast" bench allgather --fabric udp --ranks 2 --bytes 64M --json | tee -a "$file"
