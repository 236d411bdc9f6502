#!/usr/bin/env bash
# The launcher of a checkout that cannot be built: it runs the program that is there, and says when
# that is older than its sources. Argument: the launcher.
set -eu
launcher=$1
if ((EUID == 0)) && ! command -v setpriv >/dev/null; then
    echo "skipped: root may write anywhere, and setpriv is not here"
    exit 0
fi
folder=$(mktemp -d)
chmod 755 -- "$folder"
mkdir -p -- "$folder"/{build/release/bin,properties,ref,impl,include,cmake}
cp -- "$launcher" "$folder/attncheck"
printf '#!/bin/sh\necho ran "$@"\n' >"$folder/build/release/bin/attncheck"
chmod +x "$folder/build/release/bin/attncheck"
touch -d '2020-01-02' -- "$folder/build/release/bin/attncheck"
touch -d '2020-01-01' -- "$folder/CMakeLists.txt" "$folder/properties/old.cc"
chmod a-w -- "$folder/build/release"

run() {
    # Root may write anywhere.
    if ((EUID == 0)); then
        chmod -R a+rX -- "$folder"
        setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/attncheck" list 2>&1
    else
        "$folder/attncheck" list 2>&1
    fi
}

fail() {
    echo "$1" >&2
    chmod -R u+w -- "$folder"
    exit 1
}

output=$(run)
[[ $output == "ran list" ]] || fail "up to date: $output"
touch -- "$folder/properties/new.cc"
output=$(run)
[[ $output == *"ran list" ]] || fail "newer source: $output"
[[ $output == *"properties/new.cc is newer"* ]] || fail "no warning: $output"
chmod -R u+w -- "$folder"
rm -rf -- "$folder"
