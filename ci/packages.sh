#!/usr/bin/env bash
# Runs packages from PyPI that import torch on cugrad, unchanged: makes an environment without
# PyTorch (.venv-packages), and compares what they compute with what was recorded of PyTorch.
# Further arguments go to pytest: -k gpytorch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
venv=.venv-packages
list=tests/packages/requirements.txt
if ! cmp -s "$list" "$venv/requirements.txt" 2>/dev/null; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -qq --no-deps -r "$list"
  cp "$list" "$venv/requirements.txt"
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 CUGRAD_PACKAGES=1
PYTHONPATH=$PWD "$venv/bin/python" -m pytest --noconftest -p no:cacheprovider -q tests/packages "$@"
