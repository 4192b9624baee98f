#!/usr/bin/env bash
# Puts the parts of batch-array.sh together, and fails when a row is missing.
#
#   sbatch --dependency=afterok:JOBID scripts/slurm/merge.sh OUT_FOLDER OUT.jsonl
#
#SBATCH --job-name=sluice-merge
set -euo pipefail
if (($# != 2)); then
  echo "usage: sbatch --dependency=afterok:JOBID $0 OUT_FOLDER OUT.jsonl" >&2
  exit 2
fi
exec "${SLUICE:-sluice}" merge "$1"/part-*.jsonl -o "$2" --force
