#!/usr/bin/env bash
# Ranks on three hosts with MCAST_SECRET (with --encrypt MCAST_ENCRYPT=1 as well, with --open neither) while somebody on their network, and on the host of
# one of them, forges and replays datagrams to their group from their addresses. Group after group is formed until both
# have sent what they were to send. Prints a row for each attacker, then one for each group and size: "wrong" is how
# many results were, and must be 0. A group that fails ends the script.
#
#   benchmarks/secret/attack.sh [--encrypt | --open] [DATAGRAMS [PER_SECOND]] > benchmarks/results/secret/attack.ndjson    # after make build
set -euo pipefail
cd "$(dirname "$0")/../.."
secret=$(bin/mcast secret)
encrypt=0
case ${1:-} in
--encrypt) encrypt=1; shift ;;
--open) secret=; shift ;;
esac
export secret encrypt count=${1:-100000} rate=${2:-20000} group=239.192.7.7 port=17777
exec bin/mcast-lab testbed with --hosts 4 --rate unlimited --mtu 1500 -- bash -euo pipefail -c '
	dir=$(mktemp -d)
	trap "rm -rf $dir" EXIT
	pids=()
	for host in 0 3; do
		bin/mcast-lab testbed run --hosts $host-$host -- bin/mcast-lab testbed attack --interface eth0 --group $group --port $port \
			--count $count --rate $rate --seed $host >$dir/$host &
		pids+=($!)
	done
	while kill -0 ${pids[0]} 2>/dev/null || kill -0 ${pids[1]} 2>/dev/null; do
		timeout 200 bin/mcast-lab testbed run --hosts 0-2 --env=MCAST_GROUP=$group --env=MCAST_PORT=$port --env=MCAST_SECRET=$secret --env=MCAST_ENCRYPT=$encrypt -- \
			bin/mcast bench allgather --bytes 1K,64K,1M --iters 100 --json >>$dir/ranks
	done
	wait ${pids[@]}
	cat $dir/0 $dir/3 $dir/ranks'
