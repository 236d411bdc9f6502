#!/usr/bin/env bash
# zoo_control.sh PYTHON VENV PROGRAM: the control group of the zoo, and a subject of PyTorch where the environment has it. Exit status 77: no
# package, or an old Python. 3 s for each, because the test run is at its limit; ATTNCHECK_ZOO_TIME=60 is the long form.
set -uo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$1 venv=$2
export ATTNCHECK_COMMAND=$3
[[ -f $venv/complete-2 ]] || { echo "skipped: no NumPy; python.layer makes $venv"; exit 77; }
"$python" -c 'import tomllib' 2>/dev/null || { echo "skipped: $python is older than 3.11"; exit 77; }
subjects=(control_numpy)
if "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    subjects+=(control_torch torch_mha)
else
    echo "skipped: the subjects of PyTorch, which $venv does not have"
fi
exec "$python" "$here/../../zoo/run" "${subjects[@]}" --control --python "$venv/bin/python" --time "${ATTNCHECK_ZOO_TIME:-3}" \
    --property agreement --property exact_lattice --property causality
