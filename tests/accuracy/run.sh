#!/usr/bin/env bash
# Scores the repository's vectors against their targets, or the files that are given (which need no target).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
files=("$@")
[ ${#files[@]} -gt 0 ] || files=("$root"/tests/vectors/*.jsonl)
exec "$root/build/native-release/tests/accuracy/vectors" "$root/tests/accuracy/targets.json" "${files[@]}"
