#!/usr/bin/env bash
# The launcher of a checkout that cannot be built: it runs the program that is there, and says when
# that is older than its sources. And what it builds for which command. Argument: the launcher.
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

# A cmake that says what it is asked to build.
folder=$(mktemp -d)
mkdir -p -- "$folder"/{build/release/bin,bin}
cp -- "$launcher" "$folder/attncheck"
printf '#!/bin/sh\nexit 0\n' >"$folder/build/release/bin/attncheck"
cat >"$folder/bin/cmake" <<'CMAKE'
#!/bin/sh
if [ "$1" = --build ]; then
    shift 2
    echo "$*" >asked
else
    mkdir -p build/release && touch build/release/build.ninja
fi
CMAKE
chmod +x "$folder/build/release/bin/attncheck" "$folder/bin/cmake"

expect() {
    local targets=$1
    shift
    rm -f -- "$folder/asked"
    (cd -- "$folder" && PATH=$folder/bin:$PATH ATTNCHECK_SKIP_PACKAGES=1 ./attncheck "$@" 2>/dev/null) ||
        fail "./attncheck $*: exit status $?"
    [[ $(cat -- "$folder/asked") == "$targets" ]] || fail "./attncheck $* builds $(cat -- "$folder/asked"), expected $targets"
}

judge='--target attncheck_program'
everything="$judge attncheck_own_libraries"
expect "$judge" verify --candidate ./mine.so --time 10
expect "$judge" verify --candidate=python:mine.py
expect "$judge" reproduce @1
expect "$judge" explain agreement
expect "$judge" judge outputs.npz
expect "$everything" verify --op attention
expect "$everything" verify --candidate aclnn:libvendor.so
expect "$everything" verify --candidate=aclnn:
expect "$everything" verify --candidate ./mine.so --op nsa_module
expect "$everything" verify --candidate ./mine.so --large 4096
expect "$everything" mutants
expect "$everything" reproduce "attention_grad{...}" --property sampled --candidate ./mine.so
expect "$everything" setup
# A compiler that fails gives its reason first and ends with what it counted: both are shown, and where the rest is.
cp -- "$folder/bin/cmake" "$folder/bin/cmake.good"
cat >"$folder/bin/cmake" <<'CMAKE'
#!/bin/sh
seq 60
echo 'FAILED: kernel.o'
echo 'kernel.cc:3:5: error: the reason'
seq 300 | sed 's/$/: note: a candidate/'
echo 'ninja: build stopped'
exit 1
CMAKE
output=$(cd -- "$folder" && PATH=$folder/bin:$PATH ATTNCHECK_SKIP_PACKAGES=1 ./attncheck list 2>&1) && fail "a failed build has status 0"
for shown in 'error: the reason' '... 263 lines ...' 'ninja: build stopped' "the whole log is $folder/build/release/setup.log"; do
    [[ $output == *"$shown"* ]] || fail "a failed build does not show '$shown': $output"
done
mv -- "$folder/bin/cmake.good" "$folder/bin/cmake"
# What was built once has to follow its sources.
mkdir -p -- "$folder/build/release/lib" && touch -- "$folder/build/release/lib/libattncheck_builtin.so"
expect "$everything" verify --candidate ./mine.so
rm -rf -- "$folder"
