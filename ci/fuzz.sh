#!/usr/bin/env bash
# Looks for what is wrong in combinations: runs what was ever found once more, then draws random programs
# and compares them with PyTorch and with themselves in contexts that must not change them, and as on CUDA
# where CuPy is installed (with CUGRAD_FUSED=1 in the environment its kernels are compiled and run on the
# CPU, too); then draws training scripts of modules and optimizers, and compares them with PyTorch; then
# changes files of every format that is read.
#
#   bash ci/fuzz.sh            for a minute, behind the programs that were once found
#   bash ci/fuzz.sh 3600       for an hour; each difference is printed as a short script
#   bash ci/fuzz.sh 60 1234    from a seed
#   bash ci/fuzz.sh interrupts interrupts small programs before each of their instructions, for minutes
#   bash ci/fuzz.sh budgets    trains a hundred random loops within a budget, and some as on CUDA where CuPy is
#                              installed; a number behind it is a seed
#   PYTHON=python3.12          the interpreter to use instead of that of ci/test.sh, or of python3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60} seed=${2:-$((RANDOM * 32768 + RANDOM))}
python=${PYTHON:-.venv-test/bin/python}
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=python3
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONPATH=$PWD

if [ "$seconds" = budgets ]; then
  status=0
  "$python" -m tests.support.budget_loops --seed "$seed" --count 100 || status=1
  if "$python" -c 'import cupy' 2>/dev/null; then
    "$python" -m tests.support.budget_loops --seed "$seed" --count 20 --device cuda || status=1
  fi
  exit $status
fi
"$python" -c 'import torch, numpy' ||
  { echo "fuzz.sh: $python has no PyTorch to compare with: run ci/test.sh first, or set PYTHON=..." >&2; exit 1; }
if [ "$seconds" = interrupts ]; then
  CUGRAD_INTERRUPTS=every exec "$python" -m pytest -q tests/combinations/test_interrupts.py -k small
fi
status=0
echo "== programs that were once found"
"$python" -m pytest -q tests/combinations/test_programs.py -k once_found || status=1
echo "== programs, from seed $seed"
"$python" -m tests.support.programs --seed "$seed" --seconds "$((seconds * 5 / 10))" || status=1
if "$python" -c 'import cupy' 2>/dev/null; then
  echo "== programs on the CuPy that NumPy plays"
  "$python" -m tests.support.programs --seed "$seed" --seconds "$((seconds * 3 / 10))" --device cuda || status=1
fi
echo "== training scripts"
for options in "--device cpu" "--contexts --device simulated"; do
  # shellcheck disable=SC2086
  "$python" -m tests.support.scripts --seed "$seed" --seconds "$((seconds / 20))" $options || status=1
done
echo "== files"
"$python" -m tests.support.mutations --seed "$seed" --seconds "$((seconds / 10))" || status=1
exit $status
