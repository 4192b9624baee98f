#!/usr/bin/env bash
# A batch in parts on many machines: each task of the array runs one shard, and goes on with it when
# it is requeued. Folder and files must be on a file system that all nodes see.
#
#   sbatch --array=1-4 scripts/slurm/batch-array.sh MODEL IN.jsonl OUT_FOLDER [options of sluice]
#   sbatch --dependency=afterok:JOBID scripts/slurm/merge.sh OUT_FOLDER OUT.jsonl
#
#SBATCH --job-name=sluice-batch
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
set -euo pipefail
if (($# < 3)) || [[ -z ${SLURM_ARRAY_TASK_ID-} ]]; then
  echo "usage: sbatch --array=1-N $0 MODEL IN.jsonl OUT_FOLDER [options of sluice]" >&2
  exit 2
fi

sluice=${SLUICE:-sluice}
model=$1 rows=$2 folder=$3
shift 3
shard=$SLURM_ARRAY_TASK_ID
shards=$SLURM_ARRAY_TASK_COUNT
mkdir -p "$folder"

# The shell gets the signal and passes it on; a second `wait` is for the end of the program.
status=0
trap '[[ -z ${!-} ]] || kill -TERM $! 2>/dev/null' TERM
"$sluice" batch "$model" "$rows" -o "$folder/part-$shard.jsonl" --shard "$shard/$shards" "$@" &
wait $! || status=$?
((status > 128)) && { status=0; wait $! || status=$?; }

# 75: rows are left. A node that died is requeued by Slurm itself, because of --requeue.
if ((status == 75)); then
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_$shard"
  exit 0
fi
exit "$status"
