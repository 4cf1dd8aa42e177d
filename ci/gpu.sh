#!/usr/bin/env bash
# Runs the suite on CUDA, then the benchmarks beside PyTorch, on a machine with a GPU: offline, from
# the checkout, with the python3 and the packages that are there. docs/gpu.md and --help say more.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-python3}" ci/gpu.py "$@"
