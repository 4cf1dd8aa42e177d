#!/usr/bin/env bash
# Runs every check of the project on a machine with nothing but Python 3.10 or newer: makes an
# environment (.venv-test), then style, types and tests. Further arguments go to pytest: -k matmul
#
#   bash ci/test.sh --quick    style, types, the architecture, and some tests of every room: within a
#                              minute once the environment is there
#   PYTHON=python3.12          the interpreter to use instead of python3
#   CUGRAD_TEST_ORACLE=0       leave PyTorch out; the tests that compare with it are skipped
#   CUGRAD_TEST_BROWSER=0      do not fetch a browser (as root, on Debian) for the profiler's pages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
started=$SECONDS
if [ "${1:-}" = --quick ]; then
  shift
  set -- @tests/quick.txt "$@" # whole files, quick ones, of every room of the library
fi
python=${PYTHON:-python3}
venv=.venv-test
# The one version whose values, dtypes and messages the tests compare with; its operator database
# imports expecttest.
ORACLE="torch==2.13.0 expecttest"
# CuPy's API is checked, and CUDA sources are compiled, without a GPU
CUDA="cupy-cuda12x>=14,<15 nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12"
# ITT tasks go to a collector that a test compiles; records are compared with PyTorch's writer, files
# with the package's; ranks of several processes are started with mpiexec
OPTIONAL="ittapi>=1.2 tensorboard>=2.18 safetensors>=0.5 mpi4py>=4 mpich>=4.2"

# Written for PyTorch, and run on cugrad: small, and of Python alone. ci/packages.sh runs many more.
PACKAGES="einops|lightning-utilities|lion-pytorch|loralib|schedulefree|torchdiffeq|torchinfo|torchmetrics"

# The pages that the profiler writes are driven in a browser; without one those tests skip. It is
# fetched while the environment is made.
fetching=
if [ "$(id -u)" = 0 ] && [ "${CUGRAD_TEST_BROWSER:-1}" = 1 ] &&
  command -v apt-get >/dev/null && ! command -v chromium >/dev/null; then
  (
    export DEBIAN_FRONTEND=noninteractive
    timeout 60 apt-get update -qq || true # the list that is there may do
    timeout 240 apt-get install -qq -y --no-install-recommends chromium
  ) >/dev/null 2>&1 </dev/null &
  fetching=$!
fi

say() { printf '\n== %s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no $python on the PATH: install Python 3.10 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "$("$python" --version) is too old: cugrad needs Python 3.10 or newer (set PYTHON=...)"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
  fail "$python cannot make virtual environments: install its venv package (python3-venv on Debian)"

export PIP_DISABLE_PIP_VERSION_CHECK=1
wanted=$("$python" -VV; cat pyproject.toml ci/test.sh; echo "${CUGRAD_TEST_ORACLE:-1}")
wanted=$(printf '%s' "$wanted" | "$python" -c \
  'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
if [ "$(cat "$venv/requirements.sha256" 2>/dev/null || true)" != "$wanted" ]; then
  say "set-up: $("$python" --version) in $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -qq --editable ".[test,bf16,example]"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -qq $CUDA ||
    echo "CuPy could not be installed: its contract and the CUDA sources are not checked"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -qq $OPTIONAL ||
    echo "$OPTIONAL could not be installed: ITT tasks, TensorBoard, safetensors and ranks are not tested"
  grep -E "^($PACKAGES)==" tests/packages/requirements.txt |
    xargs "$venv/bin/pip" install -qq --no-deps --target "$venv/packages" ||
    echo "packages for PyTorch could not be installed: none is run on cugrad"
  if [ "${CUGRAD_TEST_ORACLE:-1}" != 1 ]; then
    echo "without PyTorch, as asked: nothing is compared with it"
  # shellcheck disable=SC2086
  elif ! "$venv/bin/pip" install -qq $ORACLE; then
    echo "$ORACLE could not be installed: nothing is compared with it"
    wanted=incomplete # try again next time
  fi
  printf '%s\n' "$wanted" >"$venv/requirements.sha256"
  echo "set-up took $((SECONDS - started)) s"
fi
. "$venv/bin/activate"
command -v "${CC:-cc}" >/dev/null || echo "no C compiler: tests with a real NVTX client skip"
# Many tests start processes: each would compile the library again where bytecode is not written.
unset PYTHONDONTWRITEBYTECODE
# two worker processes on two cores: a thread pool in each would only get in the way
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg
export CUGRAD_PACKAGES_AT=$PWD/$venv/packages

status=0
say "style: ruff"
ruff check --output-format concise . || status=1
ruff format --check --quiet . || { echo "not as the formatter has it: run ruff format ."; status=1; }
say "types: mypy"
mypy || status=1
if [ -n "$fetching" ] && ! wait "$fetching"; then
  echo "chromium could not be installed: the profiler's pages are not driven in a browser"
fi
say "tests: pytest"
TIMEFORMAT=$'\n== the tests took %R s, %U s of processors and %S s of the system'
time python -m tests.support.in_turns "${CUGRAD_TEST_WORKERS:-2}" -q -rfEsx --durations=10 "$@" ||
  status=1
if [ $# = 0 ] && python -c 'import torch' 2>/dev/null; then
  seed=$((RANDOM * 32768 + RANDOM))
  say "random programs: a minute of two cores' work from new seeds; a difference is news, and fails nothing"
  for seed in "$seed" $((seed + 1000000)); do
    python -m tests.support.programs --seed "$seed" --seconds 30 2>&1 | grep -v '^[0-9]* s: ' &
  done
  wait
fi
say "$([ $status = 0 ] && echo passed || echo FAILED) in $((SECONDS - started)) s"
exit $status
