# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# OpenCL devices beside the installed ones, for scripts/test: Intel's CPU runtime and Oclgrind.  To be sourced.
# shellcheck source-path=SCRIPTDIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Tests that look at no device, or bring a driver of their own: nothing for a second device.
# shellcheck disable=SC2034
no_device_tests='^(test_(affinity|bench_(compare|record|report)|cli.*|docs|embed|explain.*|golden|include_rule|inspect_kernel_toy|launch|layout|model_config|mutants|npy|picture.*|problem.*|readme|ref.*|rules|safetensors|select|status|stub.*|symbols.*|wordpiece)|fuzz_.*|cli_self_test_stub|property.*|self_test_data|test_self_test_stub|conformance_(reference|bad)|example_by_.*)$'

# devices_are PLATFORM COMMAND...: fails unless COMMAND lists devices of that platform and no other.
devices_are() {
  local platform=$1 listed
  shift
  listed=$("$@") || fail "no OpenCL device of $platform: the driver does not load"
  if [ "$(sed -n 's/^  platform  *//p' <<<"$listed" | sort -u)" != "$platform" ]; then
    say "$listed"
    fail "these are not devices of $platform alone"
  fi
}

# ---- Intel's CPU runtime ----

# intel_fetch FOLDER: into FOLDER/lib, unless it is there.  The loader that comes with it stays out, as do copies of files
# under other names and what the OpenCL runtime does not load.
intel_fetch() {
  local folder=$1 list=$root/scripts/intel.txt python=python3 wheel
  if cmp -s -- "$list" "$folder/fetched.txt" && [ -e "$folder/lib/libintelocl.so" ]; then
    return
  fi
  [ "$(uname -sm)" = "Linux x86_64" ] || fail "Intel's runtime is for x86-64 Linux; this is $(uname -sm)"
  need "${packages_intel[@]}"
  # A Python of the user's own may have no pip.
  "$python" -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3
  rm -rf -- "$folder"
  mkdir -p -- "$folder/wheels" "$folder/lib"
  say "Fetching Intel's OpenCL runtime (270 MB)"
  quietly "$python" -m pip download --no-deps --only-binary :all: --require-hashes --dest "$folder/wheels" -r "$list" ||
    fail "pip could not fetch Intel's OpenCL runtime"
  for wheel in "$folder"/wheels/*.whl; do
    quietly unzip -q -j "$wheel" '*.data/data/lib/*' -d "$folder/lib" -x '*/libOpenCL.so*' '*/libintelocl.so.*' \
      '*/libintelocl.so-*' '*/libcommon_clang.so' '*/icx-lto.so' '*/libtbb.so' '*/libtbb.so.12.*' '*/libtbbbind*' \
      '*/libtbbmalloc*' '*/libirc.so' '*/libintlc.so' '*/libqkmalloc.so' '*/libxptifw.so*' '*/libze_*' ||
      fail "unpacking $wheel failed"
  done
  rm -rf -- "$folder/wheels"
  cp -- "$list" "$folder/fetched.txt"
}

# intel_use FOLDER: from now on the loader finds that driver and no other.
intel_use() {
  local folder=$1
  mkdir -p -- "$folder/vendors"
  printf '%s\n' "$folder/lib/libintelocl.so" >"$folder/vendors/intel.icd"
  unset OPENCL_VENDOR_PATH
  export OCL_ICD_VENDORS=$folder/vendors LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# ---- Oclgrind ----

# under_oclgrind GROUP LOG COMMAND...: GROUP is the largest work-group that the device allows.  Optimised code has
# instructions that it does not know.  It counts the local memory of all kernels of a program as that of each.
under_oclgrind() {
  local group=$1 log=$2
  shift 2
  oclgrind --build-options -cl-opt-disable --local-mem-size 65536 --max-wgsize "$group" --check-api --data-races \
    --uniform-writes --uninitialized --max-errors 20 --log "$log" "$@"
}

# oclgrind_case FOLDER CLATTN GROUP NAME ARGUMENT...: one run of the program in FOLDER; its line, and what was found.
oclgrind_case() {
  local folder=$1 clattn=$2 group=$3 name=$4 status=0 begin=$SECONDS
  shift 4
  cd -- "$folder" || return
  rm -f -- "$name.log"
  under_oclgrind "$group" "$name.log" timeout 300 "$clattn" "$@" >"$name.txt" 2>&1 </dev/null || status=$?
  if [ $status -eq 0 ] && [ ! -s "$name.log" ]; then
    printf 'ok    %s (%d s)\n' "$*" $((SECONDS - begin))
    return
  fi
  printf 'FAIL  %s (exit status %d, %d s)\n%s\n' "$*" $status $((SECONDS - begin)) "$(cat -- "$name.txt" "$name.log")"
  return 1
}

# oclgrind_wait N: until no more than N runs are under way; counts in the caller's variables.
oclgrind_wait() {
  while [ "$running" -gt "$1" ]; do
    wait -n || bad=$((bad + 1))
    running=$((running - 1))
  done
}

# oclgrind_list FOLDER CLATTN LIST: every line of the list; tests/oclgrind.txt says what one is.
oclgrind_list() {
  local folder=$1 clattn=$2 list=$3 group variants arguments variant words running=0 count=0 bad=0 all
  rm -rf -- "$folder"
  mkdir -p -- "$folder"
  devices_are Oclgrind under_oclgrind 1024 "$folder/devices.log" "$clattn" devices
  all=$(under_oclgrind 1024 "$folder/devices.log" "$clattn" devices | sed -n 's/^  variants  *//p' | tr -d ,)
  [ -n "$all" ] || fail "clattn devices lists no variants"
  while read -r group variants arguments; do
    case $group in '' | '#'*) continue ;; esac
    # Quotes and all, as a shell reads them.
    mapfile -t words < <(xargs printf '%s\n' <<<"$arguments")
    [ "$variants" != all ] || variants=$all
    if [ "$variants" = - ]; then
      oclgrind_wait 0
      variants=
      count=$((count + 1)) running=1
      oclgrind_case "$folder" "$clattn" "$group" "$count" "${words[@]}" &
    fi
    for variant in ${variants//,/ }; do
      oclgrind_wait $((jobs - 1))
      count=$((count + 1)) running=$((running + 1))
      oclgrind_case "$folder" "$clattn" "$group" "$count" "${words[@]}" --verify --variant "$variant" &
    done
  done <"$list"
  oclgrind_wait 0
  printf 'Oclgrind: %d runs passed, %d failed\n' $((count - bad)) "$bad"
  [ "$count" -gt 0 ] && [ "$bad" -eq 0 ]
}
