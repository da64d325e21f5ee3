#!/usr/bin/env bash
#SBATCH --job-name mcast
#SBATCH --nodes 2
#SBATCH --ntasks-per-node 2
#SBATCH --time 10
# Trains as two tasks on each of two nodes: sbatch job.sh COMMAND [ARGUMENT...]. Ranks, their number and where rank 0 is
# come from Slurm's variables (launcher://).
srun --label bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"'
srun "$@" --init launcher://
