#!/usr/bin/env bash
# run.sh PYTHON VENV BUILD [PYTEST-ARGUMENT]...: makes the virtual environment once, installs the package into it as a user
# does, with the programs of a build tree, then runs the tests of this folder on what was installed. ATTNCHECK_STEP=install
# does the first half, ATTNCHECK_STEP=test the second.
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$1 venv=$2 build=$3
shift 3
skip() { echo "skipped: $*"; exit 77; }
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check --retries 1 --timeout 20 "$@" >"$venv/pip.log" 2>&1; }

step=${ATTNCHECK_STEP:-}
[[ $step != test || -f $venv/complete-2 ]] || skip "no $venv; python.layer makes it"
# scikit-build-core is here and not in an environment of its own, which pip would fill at every run.
if [[ ! -f $venv/complete-2 ]]; then
    rm -rf -- "$venv"
    "$python" -m venv "$venv" >/dev/null 2>&1 || skip "$python -m venv fails (Debian: python3-venv)"
    pip install numpy ml_dtypes pytest pytest-xdist scikit-build-core ||
        skip "numpy, ml_dtypes, pytest, pytest-xdist and scikit-build-core cannot be installed: $(tail -n 1 "$venv/pip.log")"
    touch "$venv/complete-2"
fi
if [[ $step != test ]]; then
    pip install --no-deps --no-build-isolation --force-reinstall "$here/../.." --config-settings build-dir="$venv/build" \
        --config-settings cmake.define.ATTNCHECK_BINARIES="$build" || { cat "$venv/pip.log"; exit 1; }
fi
[[ $step != install ]] || exit 0
export PYTHONDONTWRITEBYTECODE=1 PATH=$venv/bin:$PATH
unset PYTHONPATH ATTNCHECK_COMMAND ATTNCHECK_PYTHON
(($#)) || set -- "$here"
cd -- "$venv" && exec "$venv/bin/python" -m pytest -q "$@"
