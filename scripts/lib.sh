# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What demo, test and check share: packages, configuring, building, timing.  To be sourced.

set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
jobs=$(nproc 2>/dev/null || echo 2)
install=yes

# Names of Debian packages.
packages_run=(gcc libc6-dev cmake make ninja-build pkg-config opencl-headers ocl-icd-opencl-dev pocl-opencl-icd
  libcmocka-dev libcjson-dev libutf8proc-dev)
packages_test=(binutils python3)
packages_png=(libcairo2-dev libfontconfig-dev fonts-dejavu-core)
packages_check=(clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev valgrind libc6-dbg)
packages_intel=(python3-pip unzip)
packages_oclgrind=(oclgrind)
packages_gpu=(clang-19 python3 python3-pip)

say() {
  printf '%s\n' "$*" >&2
}

fail() {
  say "$(basename -- "$0"): $*"
  exit 1
}

installed() {
  dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

# as_root COMMAND...: as it is for root, through sudo for others.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    fail "needs root and there is no sudo. As root, run:  $*"
  fi
}

# quietly COMMAND...: its output only if it fails.
quietly() {
  local output status=0
  output=$("$@" 2>&1 </dev/null) || status=$?
  if [ $status -ne 0 ]; then
    say "$output"
  fi
  return $status
}

# apt ARGUMENT...
apt() {
  quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

# need PACKAGE...: installs those that are missing.
need() {
  local missing=() found=() package system
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "Packages are installed on Debian-like systems only. Needed here, by Debian's names: $*"
    return
  fi
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return
  fi
  if [ "$install" = no ]; then
    say "Not installed, and --no-install was given: ${missing[*]}"
    return
  fi
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    fail "packages are missing and there is neither root nor sudo. As root, run:  apt-get install ${missing[*]}"
  fi
  say "Reading the package lists (apt-get update)"
  apt update || say "apt-get update failed; going on with the lists that are there"
  # shellcheck source=/dev/null
  system=$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")
  if [ "$system" != "debian 12" ]; then
    say "Tested on Debian 12; untested on $system."
    for package in "${missing[@]}"; do
      if apt-cache show "$package" >/dev/null 2>&1; then
        found+=("$package")
      else
        say "This system has no package $package."
      fi
    done
    missing=("${found[@]}")
    if [ ${#missing[@]} -eq 0 ]; then
      return
    fi
  fi
  say "Installing: ${missing[*]}"
  apt install -y --no-install-recommends "${missing[@]}" || fail "apt-get install failed; needed are: $*"
}

# need_driver: an OpenCL driver that the ICD loader can find.
need_driver() {
  local folder=${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}
  if [ -d "$folder" ] && ! compgen -G "$folder/*.icd" >/dev/null; then
    fail "no OpenCL driver in $folder. PoCL's is in Debian's package pocl-opencl-icd (apt-get install --reinstall)."
  fi
}

# configure FOLDER CMAKE-ARGUMENT...: silent unless it fails.
configure() {
  local folder=$1 generator=() log
  shift
  command -v cmake >/dev/null || fail "cmake is not installed"
  # A copied tree brings a cache of the place that it was copied from.
  if [ -f "$folder/CMakeCache.txt" ] &&
    [ "$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt")" != "$root" ]; then
    rm -rf -- "$folder"
  fi
  if [ ! -f "$folder/CMakeCache.txt" ] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  mkdir -p -- "$folder"
  log=$folder/configure.log
  if ! cmake -S "$root" -B "$folder" "${generator[@]}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" >"$log" 2>&1; then
    cat -- "$log" >&2
    fail "configuring failed"
  fi
}

# build FOLDER [TARGET...]: silent unless it fails.
build() {
  local folder=$1 log=$1/build.log
  shift
  if ! cmake --build "$folder" --parallel "$jobs" ${1:+--target "$@"} >"$log" 2>&1; then
    # From the first error on; all of it where the build tool marks none.
    if grep -q '^FAILED:' -- "$log"; then
      sed -n '/^FAILED:/,$p' -- "$log" >&2
    else
      cat -- "$log" >&2
    fi
    fail "building failed; the whole log is $log"
  fi
}

# step TEXT COMMAND...: runs it and prints a line with its seconds.
step() {
  local text=$1 begin=$SECONDS status=0
  shift
  ( "$@" ) || status=$?
  if [ $status -eq 0 ]; then
    printf 'ok    %s (%d s)\n' "$text" $((SECONDS - begin))
  else
    printf 'FAIL  %s (%d s)\n' "$text" $((SECONDS - begin))
  fi
  return $status
}
