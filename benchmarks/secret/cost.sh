#!/usr/bin/env bash
# What MCAST_SECRET and MCAST_ENCRYPT=1 cost an Allgather on four hosts: without, with tags and encrypted by turns, on links
# of 1 Gbit/s and without a limit, at two MTUs. Writes a row of `mcast bench --json` each, with sealed (no, tags or
# encrypt), mtu and rate before it.
#
#   benchmarks/secret/cost.sh [ROUNDS] > benchmarks/results/secret.ndjson     # after make build; 3 rounds take 5 minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3}
for mtu in 9000 1500; do
	for rate in 1gbit unlimited; do
		bin/mcast testbed with --hosts 4 --rate "$rate" --mtu "$mtu" -- bash -euo pipefail -c '
			secret=$(bin/mcast secret)
			for ((i = 0; i < $1; i++)); do
				for sealed in no tags encrypt; do
					case $sealed in
					no) env=(--env=MCAST_SECRET= --env=MCAST_ENCRYPT=0) ;;
					tags) env=("--env=MCAST_SECRET=$secret" --env=MCAST_ENCRYPT=0) ;;
					encrypt) env=("--env=MCAST_SECRET=$secret" --env=MCAST_ENCRYPT=1) ;;
					esac
					timeout 120 bin/mcast testbed run "${env[@]}" -- bin/mcast bench allgather --bytes 64K,4M --iters 20 --json |
						grep ^{ | sed "s|^{|{\"sealed\":\"$sealed\",\"mtu\":$2,\"rate\":\"$3\",|"
				done
			done' cost "$rounds" "$mtu" "$rate"
	done
done
