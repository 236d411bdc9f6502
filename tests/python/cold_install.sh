#!/usr/bin/env bash
# cold_install.sh PYTHON VENV: `pip install .` as a user does it, everything compiled, in a new virtual environment; then the program and
# the module from there, without a compiler and without the sources on PATH. Exit status 77: not asked for, no venv, or no package
# index.
set -uo pipefail
[[ -n ${ATTNCHECK_COLD_INSTALL-} ]] || { echo "skipped: set ATTNCHECK_COLD_INSTALL to compile everything once more"; exit 77; }
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$1 venv=$2
rm -rf -- "$venv"
"$python" -m venv "$venv" >/dev/null 2>&1 || { echo "skipped: $python -m venv fails (Debian: python3-venv)"; exit 77; }
"$venv/bin/python" -m pip --quiet --retries 1 --timeout 20 download --no-deps --dest "$venv/index" ml_dtypes >"$venv/pip.log" 2>&1 ||
    { echo "skipped: no package index: $(tail -n 1 "$venv/pip.log")"; exit 77; }
unset PYTHONPATH ATTNCHECK_COMMAND ATTNCHECK_PYTHON
"$venv/bin/python" -m pip --quiet install "$here/../.." --config-settings build-dir="$venv/build" >"$venv/pip.log" 2>&1 ||
    { cat "$venv/pip.log"; exit 1; }
rm -rf -- "$venv/build"
cat >"$venv/kernel.py" <<'KERNEL'
def attention_merge(parts, lses):
    return parts[0], lses[0]
KERNEL
export PATH=$venv/bin
cd "$venv" || exit 1
attncheck --version && python -m attncheck list --op attention_merge || exit 1
said=$(attncheck verify --candidate python:kernel.py --no-validation --property agreement --cases 20 --jobs 1)
status=$?
((status == 1)) && [[ $said == *"smallest attention_merge{"* ]] && exit 0
echo "exit status $status, expected 1:" && echo "$said"
exit 1
