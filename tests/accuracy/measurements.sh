#!/usr/bin/env bash
# Scores public measurements: bash tests/accuracy/measurements.sh ROWS.json
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec node "$here/measurements/main.mjs" "$@"
