#!/usr/bin/env bash
# Two ranks reduce through a switch with a secret, by turns alone and while strangers of a third host connect to the switch
# and say anything but the secret (PER_SECOND 0: as fast as they go). Prints a row for each run of the ranks, with the most memory and descriptors that the
# switch has had so far, and one for the strangers of each: "wrong", "admitted" must be 0.
#
#   benchmarks/secret/strangers.sh [ROUNDS [PER_SECOND]] > benchmarks/results/secret/strangers.ndjson    # after make build
set -euo pipefail
cd "$(dirname "$0")/../.."
export rounds=${1:-3} rate=${2:-1000} at=10.77.0.4:7470
exec bin/mcast-lab testbed with --hosts 4 --rate unlimited --mtu 9000 -- bash -euo pipefail -c '
	dir=$(mktemp -d) secret=$(bin/mcast secret)
	bin/mcast-lab testbed run --hosts 3-3 --env=MCAST_SECRET=$secret -- sh -c "echo \$\$ >$dir/pid; exec bin/mcast switch --bind $at" >$dir/log 2>&1 &
	node=$!
	trap "kill $node; wait $node || true; rm -rf $dir" EXIT
	for ((i = 0; i < 300; i++)); do ! grep -qs listening $dir/log || break; sleep 0.1; done
	switch=$(cat $dir/pid)
	for ((i = 0; i < rounds; i++)); do
		for strangers in no yes; do
			if [[ $strangers = yes ]]; then
				bin/mcast-lab testbed run --hosts 2-2 -- bin/mcast-lab testbed attack --connect $at --switch --count 1000000 --rate $rate --seed $i >$dir/strangers &
				attack=$!
				sleep 1
			fi
			timeout 120 bin/mcast-lab testbed run --hosts 0-1 --env=MCAST_SECRET=$secret --env=MCAST_SWITCH=$at -- \
				bin/mcast bench reducescatter --switch --bytes 64K,4M --iters 200 --json | grep ^{ >$dir/ranks
			python3 - $strangers $switch $dir/ranks <<-"END"
				import json, os, sys
				status = dict(line.split(":", 1) for line in open(f"/proc/{sys.argv[2]}/status"))
				node = {"peak_MiB": int(status["VmHWM"].split()[0]) >> 10, "descriptors": len(os.listdir(f"/proc/{sys.argv[2]}/fd"))}
				keep = "date commit cpu kernel cpus collective ranks nodes bytes iters p50_us max_us wrong".split()
				for line in open(sys.argv[3]):
				    row = json.loads(line)
				    print(json.dumps({"strangers": sys.argv[1], "per_second": int(os.environ["rate"])} | {k: row[k] for k in keep} | {"switch": node}))
			END
			if [[ $strangers = yes ]]; then
				kill -INT $attack
				wait $attack || true
				cat $dir/strangers
			fi
		done
	done'
