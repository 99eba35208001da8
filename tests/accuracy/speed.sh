#!/usr/bin/env bash
# Scores step times against public measurements of speed: bash tests/accuracy/speed.sh [ROWS.json] (the repository's extract)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec node "$here/speed/main.mjs" "${@:-$here/speed/rows.json}"
