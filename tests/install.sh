# Sourced by tests/run.sh and web/serve.sh: brings what a bare Debian 12 lacks, and does nothing where all is there.
# Afterwards node is 20.19 or newer and on PATH.

build_packages=(g++ cmake ninja-build ccache emscripten binaryen nlohmann-json3-dev libexpected-dev libgtest-dev)
test_packages=(clang-format chromium)
node_needed=20.19.0   # Vite's
node_from_npm=22

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} = 0 ] && return
  echo "Installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null
}

node_is_recent() {
  command -v node >/dev/null &&
    node -e 'const [a, b] = [process.versions.node, process.argv[1]].map(v => v.split(".").map(Number));
             process.exit(a[0] > b[0] || (a[0] == b[0] && a[1] >= b[1]) ? 0 : 1)' "$node_needed"
}

# Debian 12's own node is 18: where nothing newer is there, the npm package "node" brings one into the build folder.
install_node() {
  local tools=$root/build/tools
  [ -d "$tools/node_modules/node/bin" ] && PATH=$tools/node_modules/node/bin:$PATH
  command -v npm >/dev/null || install_packages nodejs npm
  if ! node_is_recent; then
    echo "Installing node $node_from_npm"
    mkdir -p "$tools"
    npm install --loglevel=error --no-audit --no-fund --prefix "$tools" "node@$node_from_npm"
    PATH=$tools/node_modules/node/bin:$PATH
    node_is_recent
  fi
  export PATH
}

# npm ci, but only when the lock file is not the one that was installed.
install_npm() {
  local folder=$1
  cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed-lock.json" && return
  echo "Installing npm packages of ${folder#"$root"/}"
  (cd "$folder" && npm ci --loglevel=error --no-audit --no-fund)
  cp "$folder/package-lock.json" "$folder/node_modules/.installed-lock.json"
}
