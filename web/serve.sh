#!/usr/bin/env bash
# Installs what is missing, builds the engine and the site, serves it. PORT: 4173 unless given.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source tests/install.sh

install_packages "${build_packages[@]}"
install_node
install_npm "$root/web"
mkdir -p build
{ cmake --preset wasm && cmake --build --preset wasm --target door; } >build/wasm.log 2>&1 || { cat build/wasm.log; exit 1; }
npm --prefix web run --silent build

port=${PORT:-4173}
echo "http://localhost:$port/"
cd web && exec npx vite preview --host localhost --port "$port" --strictPort
