#!/bin/bash
# The harness tested: the reference plugin passes all, and each of its mutants
# (MUTANTS: name, rule) fails in the rule that it breaks.
#   mutants.sh BUILD [name ...]
set -u
build=$1
shift
here=$(dirname "$0")
harness=$build/nccl-net-conformance
plugin=$build/libnccl-net-reference.so
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
caught=0
missed=0

if [ $# -eq 0 ]; then
	"$harness" --plugin "$plugin" --strict >"$out/log" 2>&1
	status=$?
	if [ $status -ne 0 ]; then
		cat "$out/log"
		echo "the reference plugin itself: status $status"
		exit 1
	fi
	echo "reference: $(tail -n 1 "$out/log")"
fi

while read -r name rule _; do
	case $name in '' | '#'*) continue ;; esac
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	case $rule in tuner.*) abi=6 ;; *) abi=12 ;; esac
	rm -f "$out/json"
	REFERENCE_MUTANT=$name "$harness" --plugin "$plugin" --abi $abi --rule "$rule" --strict \
		--timeout 8 --json "$out/json" >"$out/log" 2>&1
	status=$?
	if [ $status -eq 1 ] && grep -q "{\"rule\": \"$rule\"" "$out/json"; then
		caught=$((caught + 1))
		printf '  %-24s caught  %-28s %s\n' "$name" "$rule" \
			"$(sed -n "s/^#     $rule ([a-z]*), //p" "$out/log" | head -n 1 | cut -c 1-110)"
	else
		missed=$((missed + 1))
		printf '  %-24s MISSED  %-28s status %d\n' "$name" "$rule" "$status"
		sed 's/^/    /' "$out/log" | tail -n 30
	fi
done <"$here/MUTANTS"

echo "$caught mutants caught, $missed missed"
[ $missed -eq 0 ] && [ $caught -gt 0 ]
