# shellcheck shell=bash disable=SC2154
# Sourced by the scripts of this tree: messages, steps with progress, packages.
# A script sets `script` (its name in messages) before it sources this file, and has the tree's root as its folder.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  bold=$'\033[1m' red=$'\033[31m' plain=$'\033[0m'
else
  bold='' red='' plain=''
fi
say() { printf '%s%s:%s %s\n' "$bold" "$script" "$plain" "$*"; }
fail() { # at most two lines: what is wrong, what to do
  printf '%s%s: %s%s\n' "$red" "$script" "$1" "$plain" >&2
  [ $# -lt 2 ] || printf '%s: %s\n' "$script" "$2" >&2
  exit 1
}

# Compilers at once: one per processor this process may use, and no more than memory allows (1 GB each).
job_count() {
  local processors memory_gb
  processors=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  [ "$memory_gb" -ge 1 ] || memory_gb=1
  echo $((processors < memory_gb ? processors : memory_gb))
}

# step "doing what" LOG command...: on a terminal the command shows itself; else its output goes to LOG, with a line of
# progress now and then, and the end of LOG if it fails (77 is not a failure: there was nothing to do).
step() {
  local what=$1 log=$2 started=$SECONDS child shown=$SECONDS code=0
  shift 2
  say "$what"
  mkdir -p "$(dirname "$log")"
  if [ -t 1 ]; then
    "$@" || return $?
    return 0
  fi
  "$@" >"$log" 2>&1 &
  child=$!
  trap 'kill $child 2>/dev/null; exit 130' INT TERM  # a child in the background would outlive Ctrl-C
  while kill -0 $child 2>/dev/null; do
    sleep 0.2
    if [ $((SECONDS - shown)) -ge 20 ]; then
      shown=$SECONDS
      say "  $((SECONDS - started)) s: $(tail -n 1 "$log" | cut -c1-100)"
    fi
  done
  wait $child || code=$?
  trap - INT TERM
  if [ $code -ne 0 ] && [ $code -ne 77 ]; then
    # What failed may be far above the end of the log.
    grep -nE -A 8 ': Failure$|runtime error:|ERROR: [A-Z][a-z]+Sanitizer|WARNING: ThreadSanitizer|: (fatal )?error:' "$log" | head -n 80 >&2
    tail -n 60 "$log" >&2
    say "failed with exit code $code while $what; the whole log is $log" >&2
  fi
  return $code
}

# What each kind of work needs: a probe (a command, a pkg-config module, a file) and Debian's package.
needs_of() {
  case $1 in
    release)
      echo "command:g++ g++
command:cmake cmake
command:ninja ninja-build
command:pkg-config pkg-config
module:fmt libfmt-dev
module:nlohmann_json nlohmann-json3-dev
module:libpcre2-8 libpcre2-dev
module:libutf8proc libutf8proc-dev
module:liblzma liblzma-dev
module:zlib zlib1g-dev
file:/usr/include/stb/stb_image.h libstb-dev
module:CLI11 libcli11-dev
module:libedit libedit-dev
file:/usr/include/boost/beast.hpp libboost-dev
module:libssl libssl-dev
module:prometheus-cpp-core prometheus-cpp-dev
module:yaml-cpp libyaml-cpp-dev
module:grpc++ libgrpc++-dev
module:protobuf libprotobuf-dev
command:protoc protobuf-compiler" ;;
    model) echo "command:python3 python3
pip:pip python3-pip
file:/etc/ssl/certs/ca-certificates.crt ca-certificates" ;;
    test) echo "module:gtest libgtest-dev
command:python3 python3
command:nm binutils
command:ccache ccache
file:/usr/include/onnx/backend/test/data/node libonnx-testdata" ;;
    clang) echo "command:clang++-19 clang-19
command:clang-tidy-19 clang-tidy-19
command:clang-format-19 clang-format-19
file:/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-x86_64.a libclang-rt-19-dev
command:git git" ;;
  esac
}

is_there() { # probe
  local what=${1#*:}
  case $1 in
    command:*) command -v "$what" >/dev/null ;;
    module:*) pkg-config --exists "$what" 2>/dev/null ;;
    pip:*) python3 -m pip --version >/dev/null 2>&1 ;;
    file:*) [ -e "$what" ] ;;
  esac
}

missing_packages() { # groups of needs
  local group probe package
  for group in "$@"; do
    needs_of "$group" | while read -r probe package; do is_there "$probe" || echo "$package"; done
  done | sort -u
}

# Installs what the groups need and this machine lacks; says nothing if nothing is missing.
install_packages() {
  local packages as_root=()
  mapfile -t packages < <(missing_packages "$@")
  [ ${#packages[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    fail "these Debian packages (or what they contain) are missing: ${packages[*]}" \
      "apt-get is not here to install them: install them as this system does, then run this again"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "these packages are missing: ${packages[*]}" \
        "run this as root, or install sudo, or have someone run: apt-get install ${packages[*]}"
    as_root=(sudo)
    sudo -n true 2>/dev/null || [ -t 0 ] ||
      fail "sudo wants a password and there is no terminal to ask on" "run this as root, or first: sudo apt-get install ${packages[*]}"
    say "installing packages with sudo, which may ask for your password: ${packages[*]}"
    sudo -v || fail "sudo refused" "run this as root, or have someone run: apt-get install ${packages[*]}"
  fi
  # 300 s: another apt-get may hold the lock.
  local options=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq)
  step "looking up packages" build/logs/apt-update.log "${as_root[@]}" apt-get "${options[@]}" update ||
    fail "apt-get update failed" "is there a network, and does /etc/apt name a reachable mirror?"
  step "installing ${packages[*]}" build/logs/apt-install.log \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" install --yes --no-install-recommends "${packages[@]}" ||
    fail "apt-get could not install: ${packages[*]}" "is there a network and space on the disk? Debian 12 has all of them"
  mapfile -t packages < <(missing_packages "$@")
  [ ${#packages[@]} -eq 0 ] || fail "still missing after installing: ${packages[*]}" "is this Debian 12 or newer?"
}

check_machine() { # free megabytes wanted
  [ "$(uname -s)" = Linux ] || fail "Bolide runs on Linux; this is $(uname -s)"
  [ "$(uname -m)" = x86_64 ] || fail "Bolide is built for x86_64 so far; this machine is $(uname -m)"
  [ -w . ] || fail "$PWD cannot be written to" "clone the repository to a folder of your own, or run this as its owner"
  local free
  free=$(df --output=avail -m . | tail -n 1 | tr -d ' ')
  [ "$free" -ge "$1" ] || fail "the disk of $PWD has $free MB free; this needs about $1 MB" "free some space, then run this again"
}

check_compiler() {
  local compiler=${CXX:-g++} version
  version=$($compiler -dumpversion 2>/dev/null | cut -d. -f1) || fail "the compiler $compiler does not run"
  if $compiler --version | grep -qi clang; then
    [ "$version" -ge 17 ] || fail "$compiler is clang $version; Bolide needs GCC 12 or clang 17, or newer" "set CXX, as in: CXX=clang++-19 ./$script"
  else
    [ "$version" -ge 12 ] || fail "$compiler is GCC $version; Bolide needs GCC 12 or newer (Debian 12 has it)" "set CXX, as in: CXX=g++-12 ./$script"
  fi
}

# A build folder that was copied or moved with the tree still points at its old place: it is thrown away.
drop_moved_build() { # preset
  local cache=build/$1/CMakeCache.txt
  [ -f "$cache" ] || return 0
  grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache" && return 0
  say "build/$1 was made for another folder: starting it afresh"
  rm -rf "build/$1"
}
