#!/bin/bash
# The harness tested: the reference plugin passes all, and each of its mutants
# (MUTANTS: name, rule) fails in the rule that it breaks.
#   mutants.sh BUILD [name ...]
#   REFERENCE_ABI=newest       versions in which the reference is run; all
#   REFERENCE_BUILD=DIRECTORY  the build whose harness runs its reference; BUILD
set -u
build=$1
shift
here=$(dirname "$0")
harness=$build/nccl-net-conformance
plugin=$build/libnccl-net-reference.so
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

if [ $# -eq 0 ]; then
	whole=${REFERENCE_BUILD:-$build}
	"$whole/nccl-net-conformance" --plugin "$whole/libnccl-net-reference.so" --strict ${REFERENCE_ABI:+--abi "$REFERENCE_ABI"} >"$out/log" 2>&1
	status=$?
	if [ $status -ne 0 ]; then
		cat "$out/log"
		echo "the reference plugin itself: status $status"
		exit 1
	fi
	echo "reference: $(tail -n 1 "$out/log")"

	# With --per-rank a mutant is at rank 1 alone, and is caught there alone.
	"$harness" --plugin "$plugin" --abi newest --ranks 2 --rule coll.own-part --per-rank REFERENCE_MUTANT=,coll-own-part >"$out/log" 2>&1
	if [ $? -ne 1 ] || [ "$(grep -oE '^#     coll.own-part .*, rank [0-9]+' "$out/log" | grep -oE '[0-9]+$')" != 1 ]; then
		cat "$out/log"
		echo "--per-rank: not rank 1 alone"
		exit 1
	fi

	# Where nothing can listen no byte arrives, and no rule of bytes is kept.
	REFERENCE_MUTANT=listen-fails "$harness" --plugin "$plugin" --abi newest --rule net.bytes >"$out/log" 2>&1
	if [ $? -ne 1 ] || ! grep -qE '^# net.bytes +- *$' "$out/log"; then
		cat "$out/log"
		echo "listen-fails: net.bytes is not -"
		exit 1
	fi
	REFERENCE_MUTANT=no-device "$harness" --plugin "$plugin" >"$out/log" 2>&1
	if [ $? -ne 2 ] || [ "$(wc -l <"$out/log")" -ne 1 ] || ! grep -q 'it finds no device' "$out/log"; then
		cat "$out/log"
		echo "no-device: not one sentence"
		exit 1
	fi
fi

# try NAME RULE: whether the mutant fails in the rule that it breaks. Most of the time it
# only waits, so several are tried at once.
try() {
	local name=$1 rule=$2 status log=$out/$1.log json=$out/$1.json
	REFERENCE_MUTANT=$name "$harness" --plugin "$plugin" --abi newest --rule "$rule" --strict \
		--timeout 8 --json "$json" >"$log" 2>&1
	status=$?
	if [ $status -eq 1 ] && grep -q "{\"rule\": \"$rule\"" "$json"; then
		touch "$out/$name.caught"
		printf '  %-24s caught  %-28s %s\n' "$name" "$rule" \
			"$(sed -n "s/^#     $rule ([a-z]*), //p" "$log" | head -n 1 | cut -c 1-110)"
	else
		touch "$out/$name.missed"
		printf '  %-24s MISSED  %-28s status %d\n' "$name" "$rule" "$status"
		sed 's/^/    /' "$log" | tail -n 30
	fi
}

while read -r name rule _; do
	case $name in '' | '#'*) continue ;; esac
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
	try "$name" "$rule" &
done <"$here/MUTANTS"
wait

count() { find "$out" -name "*.$1" | wc -l; }
caught=$(count caught)
missed=$(count missed)
echo "$caught mutants caught, $missed missed"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
