#!/usr/bin/env bash
# Runs fuzz targets side by side and writes what came of them. Needs no compiler: bash, awk and coreutils.
set -uo pipefail
if [ $# -ne 4 ]; then
  cat >&2 <<EOF
usage: tools/fuzz_run.sh TARGETS SEEDS OUT SECONDS

Runs every TARGETS/*_fuzz for SECONDS, from SEEDS/NAME and OUT/corpus/NAME, JOBS (all processors) at once. OUT gets
  fuzz.json              runs, coverage, findings of each target (tools/fuzz_report.py reads it)
  NAME.log               the end of its output; with a fault also where it begins
  NAME-crash-*, -timeout-*, -oom-*, -leak-*   inputs that are findings
  corpus/NAME            what it found worth keeping, for the next run
Exit code 1 if there is a finding.
EOF
  exit 2
fi
targets=$1 seeds=$2 out=$3 seconds=$4
mkdir -p "$out" || exit 2
shopt -s nullglob
# Files that targets write are made and removed hundreds of times a second; a fault leaves some.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || TMPDIR=/dev/shm
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/fuzz-XXXXXX") || exit 2
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

# Coverage when the seeds are read and at the end, and the statistics that libFuzzer prints at its end, as one line of JSON.
summarise() { # name, exit code, findings...
  local name=$1 code=$2
  shift 2
  awk -v name="$name" -v code="$code" -v asked="$seconds" -v findings="$*" '
    function after(key,   i) { for (i = 1; i < NF; ++i) if ($i == key) return $(i + 1) }
    /inline 8-bit counters/ { for (i = 2; i <= NF; ++i) if ($i == "inline") { all = $(i - 1); sub(/\(/, "", all) } }
    / cov: / && / ft: / {
      if ($2 == "INITED") { edges_first = after("cov:"); features_first = after("ft:") }
      edges = after("cov:"); features = after("ft:"); split(after("corp:"), corpus, "/")
    }
    /^Done .* in [0-9]+ second/ { took = $(NF - 1) }
    /^stat::/ { stat[$1] = $2 }
    END {
      count = split(findings, list, " ")
      for (i = 1; i <= count; ++i) names = names (i > 1 ? ", " : "") "\"" list[i] "\""
      printf "{\"target\": \"%s\", \"seconds\": %d, \"exit_code\": %d, ", name, took == "" ? asked : took, code
      printf "\"runs\": %d, \"runs_per_s\": %d, ", stat["stat::number_of_executed_units:"], stat["stat::average_exec_per_sec:"]
      printf "\"edges\": %d, \"edges_at_start\": %d, \"edges_all\": %d, ", edges, edges_first, all
      printf "\"features\": %d, \"features_at_start\": %d, ", features, features_first
      printf "\"corpus_inputs\": %d, \"corpus_size\": \"%s\", ", corpus[1], corpus[2]
      printf "\"slowest_s\": %d, \"peak_rss_mb\": %d, ", stat["stat::slowest_unit_time_sec:"], stat["stat::peak_rss_mb:"]
      printf "\"findings\": [%s]}\n", names
    }' "$out/full/$name.log"
}

fuzz_one() { # path of the target
  local name code=0 log
  name=$(basename "$1")
  log=$out/full/$name.log
  mkdir -p "$out/corpus/$name" "$out/full"
  rm -f "$out/$name"-{crash,timeout,oom,leak}-*
  local corpora=("$out/corpus/$name")
  [ ! -d "$seeds/$name" ] || corpora+=("$seeds/$name")
  "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$out/$name-" "${corpora[@]}" >"$log" 2>&1 || code=$?
  {
    [ $code -eq 0 ] || grep -a -m 1 -A 60 -E '^==[0-9]+== ?ERROR|runtime error:|internal error at' "$log"
    tail -n 30 "$log"
  } >"$out/$name.log"
  local findings=("$out/$name"-{crash,timeout,oom,leak}-*)
  summarise "$name" "$code" "${findings[@]##*/}" >"$out/full/$name.json"
}

list=("$targets"/*_fuzz)
[ ${#list[@]} -gt 0 ] || { echo "fuzz_run: $targets has no *_fuzz" >&2; exit 2; }
rm -f "$out"/full/*.json
jobs=${JOBS:-$(nproc)}
for target in "${list[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  fuzz_one "$target" &
done
wait

{
  printf '{"processor": "%s", "processors": %d, "seconds": %d, "targets": [\n' \
    "$(awk -F': ' '/^model name/ {print $2; exit}' /proc/cpuinfo)" "$(nproc)" "$seconds"
  for file in "$out"/full/*.json; do [ "$file" = "${first:=$file}" ] || echo ','; tr -d '\n' <"$file"; done
  printf '\n]}\n'
} >"$out/fuzz.json"
! grep '"exit_code": [1-9]' "$out/fuzz.json"
