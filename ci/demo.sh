#!/usr/bin/env bash
# Trains a network on real digits with its activations offloaded, on a machine with nothing but Python 3.10
# or newer: makes .venv-demo in the checkout, unless python3 has all that is needed, then runs
# examples/train_digits.py. Without a GPU the report and the plot say what an H200 would do, as the
# simulated device predicts it. Arguments go to the example: bash ci/demo.sh --epochs 3
#
#   PYTHON=python3.12    the interpreter to use instead of python3
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
venv=$root/.venv-demo

say() { printf '%s\n' "$*" >&2; }
fail() { say "demo.sh: $*"; exit 1; }
run() {
  exec "$@" "$root/examples/train_digits.py" ${predict:+--predict "$predict"} "${arguments[@]+"${arguments[@]}"}"
}
arguments=("$@") predict=

command -v "$python" >/dev/null || fail "no $python on the PATH: install Python 3.10 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "$("$python" --version) is too old: cugrad needs Python 3.10 or newer (set PYTHON=...)"

# Which CuPy fits the driver; none where there is no NVIDIA GPU.
cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1 || true)
case "${cuda:-0}" in
  0) extra= needs= ;;
  [1-9] | 10 | 11) extra= needs= ; say "the NVIDIA driver is for CUDA $cuda, want 12 or newer: using the CPU" ;;
  12) extra=cuda12-ctk needs=cupy ;;
  *) extra=cuda13-ctk needs=cupy ;;
esac
# Where there is none, a few steps on the simulated device say what one would do.
[ -n "$extra" ] || predict=H200

has() { # interpreter, modules: whether it can import them all, with a NumPy that cugrad accepts
  "$@" 2>/dev/null <<'PYTHON'
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
sys.exit("numpy" in sys.argv and int(sys.modules["numpy"].__version__.split(".")[0]) < 2)
PYTHON
}
# shellcheck disable=SC2086
if has "$python" - numpy nvtx sklearn matplotlib tqdm $needs; then
  run "$python"
fi

wanted=$("$python" -VV; cat "$root/pyproject.toml" "${BASH_SOURCE[0]}"; echo "$extra")
wanted=$(printf '%s' "$wanted" | "$python" -c \
  'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
if [ "$(cat "$venv/requirements.sha256" 2>/dev/null || true)" != "$wanted" ]; then
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments: install its venv package (python3-venv on Debian)"
  say "setting up $venv, once"
  rm -rf "$venv"
  # with the interpreter's own packages in sight, a CuPy that is there is not installed again
  "$python" -m venv ${extra:+--system-site-packages} "$venv"
  export PIP_DISABLE_PIP_VERSION_CHECK=1
  "$venv/bin/python" -m pip install -qq --editable "$root[example]" ||
    fail "the packages could not be installed; without a network, $python needs numpy>=2 nvtx scikit-learn matplotlib tqdm"
  if [ -n "$extra" ] && ! has "$venv/bin/python" - cupy; then
    "$venv/bin/python" -m pip install -qq --editable "$root[$extra]" ||
      say "CuPy could not be installed, although there is a GPU: using the CPU"
  fi
  printf '%s\n' "$wanted" >"$venv/requirements.sha256"
fi
run "$venv/bin/python"
