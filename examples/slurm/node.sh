#!/usr/bin/env bash
# A host of the cluster that `run` makes: `mcast-lab testbed run` starts this on each, and ends all that it has started.
# The first has munged, slurmctld and a slurmd, submits a job that runs the command it is given, and waits for its end; the
# others have a slurmd.
#
#   node.sh COMMAND [ARGUMENT...]
set -euo pipefail
cd "$SCRATCH"
programs=$DEBS/usr
export PATH=$programs/bin:$PATH LD_LIBRARY_PATH=$programs/lib/x86_64-linux-gnu/slurm-wlm SLURM_CONF=$SCRATCH/slurm.conf

# until_it runs a command until it succeeds, for some time at most.
until_it() { # what, seconds, command
	local what=$1 seconds=$2 try
	shift 2
	for ((try = 0; try < 10 * seconds; try++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	echo "slurm: $what: nothing after $seconds s; the last lines of the logs:" >&2
	tail -n 5 "$SCRATCH"/*.log >&2
	exit 1
}

# conf writes what all of them read: no accounting, no cgroups, tasks found by their parents.
conf() {
	local user
	user=$(id -un)
	cat >slurm.conf.new <<END
ClusterName=testbed
SlurmctldHost=$(hostname)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$SCRATCH/munge.socket
PluginDir=$programs/lib/x86_64-linux-gnu/slurm-wlm
StateSaveLocation=$SCRATCH/state
SlurmdSpoolDir=$SCRATCH/spool-%n
SlurmctldPidFile=$SCRATCH/slurmctld.pid
SlurmdPidFile=$SCRATCH/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
NodeName=$NODES CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=10 OverSubscribe=YES
END
	mv slurm.conf.new slurm.conf
}

# slurmd becomes one, of this host; start it in the background.
slurmd() {
	mkdir -p "spool-$(hostname)"
	exec "$programs/sbin/slurmd-wlm" -D -N "$(hostname)" -d "$programs/sbin/slurmstepd-wlm" -f "$SLURM_CONF" \
		-L "$SCRATCH/slurmd-$(hostname).log" 2>/dev/null # which the log has
}

# What `mcast-lab testbed run` says of ranks is of these scripts. Tasks get theirs from Slurm.
rank=$RANK
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE \
	ROLE_NAME MASTER_ADDR MASTER_PORT

if [ "$rank" != 0 ]; then
	until_it "slurm.conf" 60 test -e slurm.conf
	slurmd & # ends with the run
	# Slurm ends the job after its --time at the latest, and the first host all of this if it fails before.
	until_it "the end of the job" 900 test -e done
	kill "$!"
	wait "$!" || true
	exit 0
fi

dd if=/dev/urandom of=munge.key bs=128 count=1 status=none
chmod 400 munge.key
mkdir -p state
"$programs/sbin/munged" --foreground --key-file munge.key --socket "$SCRATCH/munge.socket" --pid-file munge.pid \
	--log-file munge.log --seed-file munge.seed --force 2>munge-error.log &
daemons=("$!")
until_it "munged" 60 test -S munge.socket
conf
"$programs/sbin/slurmctld-wlm" -D -f "$SLURM_CONF" -L "$SCRATCH/slurmctld.log" 2>/dev/null &
daemons+=("$!")
slurmd &
daemons+=("$!")
until_it "idle nodes" 60 sh -c '[ "$(sinfo --noheader --format %D --states idle)" = 2 ]'
sinfo --Node --long
echo "+ sbatch job.sh $*"
status=0
sbatch --wait --output job.txt "$JOB" "$@" || status=$?
cat job.txt
scontrol show job 1 | grep -E 'JobState|NodeList=|NumTasks'
touch done
kill "${daemons[@]}"
wait "${daemons[@]}" || true
exit "$status"
