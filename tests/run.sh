#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every suite. Stops at the first that fails.
# The last line is "N passed, N failed", summed over the suites.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source tests/install.sh

logs=$root/build/logs
mkdir -p "$logs"
passed=0
failed=0

finish() {
  echo
  echo "$passed passed, $failed failed"
  exit "$1"
}

# The counts in a suite's log, whichever runner wrote it: "PASSED FAILED".
count() {
  sed -E 's/\x1b\[[0-9;]*m//g' "$1" | awk '
    /^\[  PASSED  \] [0-9]+ test/  { ok += $4 }                                     # GoogleTest
    /^\[  FAILED  \] [0-9]+ test/  { bad += $4 }
    /^[a-z_]+: [0-9]+ passed, [0-9]+ failed/ { ok += $2; bad += $4 }                # our own scripts
    /^ +Tests +/ { for (i = 2; i < NF; ++i) { if ($(i + 1) == "passed") ok += $i; if ($(i + 1) == "failed") bad += $i } }   # Vitest
    /^ +[0-9]+ passed( \(|$)/ { ok += $1 }                                          # Playwright
    /^ +[0-9]+ (failed|flaky)$/ { if ($2 == "failed") bad += $1; else ok += $1 }
    END { print ok + 0, bad + 0 }'
}

# suite NAME COMMAND…: runs it, shows its output, adds its counts.
suite() {
  local name=$1 status=0 begin=$SECONDS ok bad
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$logs/$name.txt" || status=${PIPESTATUS[0]}
  read -r ok bad < <(count "$logs/$name.txt")
  if [ "$status" = 0 ] && [ "$ok" = 0 ]; then echo "$name ran no test"; status=1; fi
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  echo "-- $name: $ok passed, $bad failed, $((SECONDS - begin)) s"
  [ "$status" = 0 ] || finish 1
}

# step NAME COMMAND…: what comes before tests; its output is shown only if it fails.
step() {
  local name=$1 begin=$SECONDS
  shift
  if ! "$@" >"$logs/$name.txt" 2>&1; then
    cat "$logs/$name.txt"
    echo "-- $name failed"
    failed=$((failed + 1))
    finish 1
  fi
  echo "-- $name: $((SECONDS - begin)) s"
}

install() {
  install_packages "${build_packages[@]}" "${test_packages[@]}"
  install_node
  install_npm "$root/web"
}

# build PRESET TARGET…
build() {
  local preset=$1
  shift
  cmake --preset "$preset"
  cmake --build --preset "$preset" --target "$@"
}

# GoogleTest's own report of each test is noise until one fails.
unit_native() { ASAN_OPTIONS=detect_leaks=1 build/native-debug/tests/unit_tests --gtest_brief=1; }
unit_wasm() { node build/wasm/tests/unit_tests.js --gtest_brief=1; }

browser() { npm --prefix web run --silent test:browser; }
bench() { node tests/bench/bench.mjs && node tests/bench/page.mjs; }
page() { npm --prefix web run --silent test; }

begin=$SECONDS
install
step build-native-release build native-release llmem vectors
step build-native-debug build native-debug unit_tests
step build-wasm build wasm door unit_tests
suite rules node tests/rules/rules.mjs
suite unit-native unit_native
suite unit-wasm unit_wasm
suite contract node tests/contract/contract.mjs
if [ -f tests/accuracy/run.sh ]; then suite accuracy bash tests/accuracy/run.sh; fi
suite measurements bash tests/accuracy/measurements.sh tests/data/measurements.json tests/accuracy/measurement_floors.json
suite speed bash tests/accuracy/speed.sh tests/accuracy/speed/rows.json --floors tests/accuracy/speed_floors.json
suite page page
step build-web npm --prefix web run build
suite browser browser
suite bench bench
echo "-- all: $((SECONDS - begin)) s"
finish 0
