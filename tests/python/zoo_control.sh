#!/usr/bin/env bash
# zoo_control.sh PYTHON VENV PROGRAM: the NumPy control group of the zoo for a few seconds. Exit status 77: no package, or an old Python.
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$1 venv=$2
export ATTNCHECK_COMMAND=$3
[[ -f $venv/complete-2 ]] || { echo "skipped: no NumPy; python.layer makes $venv"; exit 77; }
"$python" -c 'import tomllib' 2>/dev/null || { echo "skipped: $python is older than 3.11"; exit 77; }
exec "$python" "$here/../../zoo/run" control_numpy --control --python "$venv/bin/python" --time 3 \
    --property agreement --property exact_lattice --property causality
