#!/usr/bin/env bash
# Proves on a machine with GPUs what is claimed of them, in at most 8 minutes, the most telling first.
#
#   benchmarks/gpu/prove.sh [STEP...]      all steps unless some are named; --list names them
#
# OUT is where results go (benchmarks/results/gpu), PYTHON a Python with torch, LIMIT_S the seconds for all (480; with
# more of them each step has more, in proportion). Each step has a limit of its own, and its rows are written when it
# ends or meets that limit, so that a cut of all loses one step at most. What a step says is kept whole beside the rows.
# A step that fails ends no other. On a machine without a GPU the steps that need one say so. prove.py makes a table of
# the rows.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT:-$root/benchmarks/results/gpu}
limit=${LIMIT_S:-480}
python=${PYTHON:-$root/.venv/bin/python}
command -v "$python" >/dev/null || python=python3
mcast=$root/bin/mcast lab=$root/bin/mcast-lab
[ ! -e "$lab.gz" ] || gunzip --keep --force "$lab.gz" # as scripts/gpu-kit leaves it
for program in "$mcast" "$lab"; do
	[ -x "$program" ] || { echo "benchmarks/gpu/prove.sh: $program is missing: make build" >&2; exit 1; }
done
export PYTHON=$python PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH} MCAST_LIBRARY=$root/lib/libnccl-net-mcast.so
export OMP_NUM_THREADS=1
mkdir -p "$out"
rows=$out/prove.ndjson
bed=prove-$$

gpu() { # gpu.py with the options that all steps share
	"$here/run.sh" --turns 1 --output "$out/rows.ndjson" "$@"
}
on_links() { # hosts, rate, options of gpu.py
	"$lab" testbed with --name "$bed" --hosts "$1" --rate "$2" -- "$here/run.sh" --turns 1 --output "$out/rows.ndjson" \
		--testbed "$bed" --ranks "$1" "${@:3}"
}
with_switch() { # a switch on loopback while a command runs
	"$mcast" switch --bind 127.0.0.1:7470 >"$out/switch.txt" 2>&1 &
	local node=$! status=0
	MCAST_SWITCH=127.0.0.1:7470 "$@" || status=$?
	kill "$node" 2>/dev/null
	wait "$node" 2>/dev/null
	return "$status"
}

small=(8 1024 65536 1048576) large=(16777216 268435456)
quick=(--rounds 5 --steps 8)
# name, seconds, command. The order is that of worth.
steps=(
	"machine 20 $python $here/facts.py --out $rows"
	"doctor 25 $mcast doctor"
	"nccl-check 15 env NCCL_NET_PLUGIN=mcast NCCL_NET=mcast NCCL_COLLNET_ENABLE=1 MCAST_TUNER_ALLGATHER=1 MCAST_TUNER_REDUCE_SCATTER=1 NCCL_NET_PLUGIN_REF_COUNT=1 LD_LIBRARY_PATH=$root/lib:${LD_LIBRARY_PATH:-} $mcast nccl check --python $python"
	"nccl-net-2 45 gpu --ranks 2 --contenders nccl-net ${quick[*]} --bytes ${small[*]} ${large[*]}"
	"nccl-collnet-2 45 with_switch gpu --ranks 2 --contenders nccl-collnet ${quick[*]} --bytes ${small[*]} ${large[*]}"
	"nccl-socket-2 45 gpu --ranks 2 --contenders nccl-socket ${quick[*]} --bytes ${small[*]} ${large[*]}"
	"mcast-2 50 gpu --ranks 2 --contenders mcast mcast-udp ${quick[*]} --bytes ${small[*]} ${large[0]}"
	"streams 30 $python $here/semantics.py --out $rows"
	"graphs 40 $python $here/graphs.py --out $rows"
	"nccl-tests-2 60 with_switch $python $here/nccl_tests.py --output $out/nccl-tests.ndjson --largest 64M --limit 10"
	"nccl-links 60 on_links 2 1gbit --contenders nccl-socket nccl-collnet ${quick[*]} --bytes 1048576 4194304"
	"mcast-links 60 on_links 2 1gbit --contenders gloo mcast-udp ${quick[*]} --bytes 1048576 4194304"
	"nccl-net-4 40 gpu --ranks 4 --contenders nccl-net ${quick[*]} --bytes ${small[*]} ${large[0]}"
	"nccl-collnet-4 40 with_switch gpu --ranks 4 --contenders nccl-collnet ${quick[*]} --bytes ${small[*]} ${large[0]}"
	"tuner-2 40 gpu --ranks 2 --contenders nccl-tuner ${quick[*]} --bytes ${small[*]}"
	"cores-shm 40 $here/cores.sh shm $out/cores.ndjson"
	"cores-udp 40 $here/cores.sh udp $out/cores.ndjson"
	"gloo-2 40 gpu --ranks 2 --contenders gloo ${quick[*]} --bytes ${small[*]} ${large[0]}"
)

if [ "${1:-}" = --list ]; then
	for step in "${steps[@]}"; do
		read -r name seconds command <<<"$step"
		printf '%-16s %4d s  %s\n' "$name" "$seconds" "${command//$root\//}"
	done
	exit 0
fi


export -f gpu on_links with_switch
export here root out mcast lab python bed rows
failed=0
for step in "${steps[@]}"; do
	read -r name seconds command <<<"$step"
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	[ "$limit" -le 480 ] || seconds=$((seconds * limit / 480))
	left=$((limit - SECONDS))
	if [ "$left" -lt 10 ]; then
		printf '{"record": "step", "step": "%s", "status": "not begun: the %d s are over", "seconds": 0}\n' "$name" "$limit" >>"$rows"
		continue
	fi
	[ "$seconds" -lt "$left" ] || seconds=$left
	began=$SECONDS status=0
	timeout -k 5 "$seconds" bash -c "$command" >"$out/$name.txt" 2>&1 || status=$?
	case $status in
	0) said=passed ;;
	77) said="left out for want of $(tail -n 1 "$out/$name.txt" | sed 's/^missing: //; s/: .*//')" ;;
	124 | 137) said="cut after $seconds s" failed=1 ;;
	*) said="failed with status $status" failed=1 ;;
	esac
	printf '{"record": "step", "step": "%s", "status": "%s", "seconds": %d}\n' "$name" "$said" $((SECONDS - began)) >>"$rows"
	echo "[$SECONDS s] $name: $said"
	"$lab" testbed down --name "$bed" >/dev/null 2>&1 || true
done
exit "$failed"
