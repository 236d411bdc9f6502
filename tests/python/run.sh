#!/usr/bin/env bash
# run.sh PYTHON VENV PROGRAM [PYTEST-ARGUMENT]...: makes the virtual environment once, then runs the tests of this folder.
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$1 venv=$2 program=$3
shift 3
skip() { echo "skipped: $*"; exit 77; }

if [[ ! -f $venv/complete ]]; then
    rm -rf -- "$venv"
    "$python" -m venv "$venv" >/dev/null 2>&1 || skip "$python -m venv fails (Debian: python3-venv)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
        numpy ml_dtypes pytest >"$venv/pip.log" 2>&1 || skip "numpy, ml_dtypes and pytest cannot be installed: $(tail -n 1 "$venv/pip.log")"
    touch "$venv/complete"
fi
export ATTNCHECK_COMMAND=$program PYTHONPATH=$here/../../python PYTHONDONTWRITEBYTECODE=1
(($#)) || set -- "$here"
exec "$venv/bin/python" -m pytest -q "$@"
