# What the run scripts of the launchers share. They source it, in any folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Python with torch; another one, say of a container, may be named.
python=${PYTHON:-$root/.venv/bin/python}
lab=$root/bin/mcast-lab
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1

fail() { # message
	echo "$0: $1" >&2
	exit 1
}

[ -x "$python" ] || fail "$python is missing: make setup, or name a Python with torch by PYTHON"
for built in lib/libnccl-net-mcast.so bin/mcast bin/mcast-lab; do
	[ -e "$root/$built" ] || fail "$built is missing: make build"
done

# What a run leaves for a moment lies here: checkpoints, logs, configurations.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# command_line says what is run, and runs it.
command_line() {
	echo "+ $*"
	"$@"
}
