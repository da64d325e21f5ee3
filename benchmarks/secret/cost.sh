#!/usr/bin/env bash
# What MCAST_SECRET and MCAST_ENCRYPT=1 cost an Allgather: without, with tags and encrypted by turns. Small messages between
# two hosts without a limit, larger ones between four on links of 1 and 4 Gbit/s and without a limit, at two MTUs. Writes
# a row of each run: what `mcast bench --json` says of times and CPU, with sealed (no, tags or encrypt), mtu and rate
# before it.
#
#   benchmarks/secret/cost.sh [ROUNDS] > benchmarks/results/secret/cost.ndjson     # after make build; 4 rounds take 5 minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
export rounds=${1:-4}
export keep="date commit cpu kernel cpus ranks bytes iters p50_us min_us max_us cpu_s wrong sent_ratio"

# by_turns HOSTS MTU RATE BYTES:ITERATIONS...
by_turns() {
	bin/mcast-lab testbed with --hosts "$1" --mtu "$2" --rate "$3" -- bash -euo pipefail -c '
		secret=$(bin/mcast secret)
		for ((i = 0; i < rounds; i++)); do
			for sealed in no tags encrypt; do
				env=("--env=MCAST_SECRET=$secret" --env=MCAST_ENCRYPT=0)
				case $sealed in
				no) env=(--env=MCAST_SECRET= --env=MCAST_ENCRYPT=0) ;;
				encrypt) env=("--env=MCAST_SECRET=$secret" --env=MCAST_ENCRYPT=1) ;;
				esac
				for size in "${@:3}"; do
					timeout 120 bin/mcast-lab testbed run "${env[@]}" -- bin/mcast bench allgather --bytes ${size%:*} --iters ${size#*:} --json |
						python3 -c "$shorten" $sealed $1 $2
				done
			done
		done' cost "${@:2}"
}

export shorten='
import json, os, sys
for line in sys.stdin:
    if line.startswith("{"):
        row = json.loads(line)
        print(json.dumps(dict(zip(["sealed", "mtu", "rate"], sys.argv[1:])) | {k: row[k] for k in os.environ["keep"].split()}))
'
for mtu in 9000 1500; do
	by_turns 2 "$mtu" unlimited 1K:8000
	for rate in 1gbit 4gbit unlimited; do
		by_turns 4 "$mtu" "$rate" 64K:200 4M:30
	done
done
