#!/usr/bin/env bash
# The web page in a headless Chromium, against a running broker (guest/guest).
#   run.sh install              what test.js needs, into ${QUORATE_CACHE_DIR:-~/.cache/quorate}/browser
#   run.sh HTTP AMQP [STEP]     runs all of it, or the steps whose names have STEP in them; HOST:PORT each. Leaves screenshots
#                               in ${QUORATE_SCREENSHOTS:-the same folder/screenshots}
# README's picture is overview.png of the step README, made with QUORATE_PICTURE_MS=75000 and copied to src/management/page.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/browser
SECONDS_MAX=3600

install() {
  cmp -s "$HERE/package.json" "$CACHE/installed.json" && return
  rm -rf "$CACHE/node_modules"
  mkdir -p "$CACHE"
  cp "$HERE/package.json" "$CACHE/"
  npm install --prefix "$CACHE" --no-package-lock --no-audit --no-fund --loglevel=error
  cp "$HERE/package.json" "$CACHE/installed.json"
}

case ${1:-} in
  install) install ;;
  *:*)
    [ $# -ge 2 ] || { sed -n 2,5p "$0" >&2 && exit 2; }
    install
    # Modules are looked for beside the script, so it runs where they are.
    cp "$HERE"/*.js "$CACHE/"
    export QUORATE_SCREENSHOTS=${QUORATE_SCREENSHOTS:-$CACHE/screenshots}
    mkdir -p "$QUORATE_SCREENSHOTS"
    exec timeout "$SECONDS_MAX" node "$CACHE/test.js" "$@"
    ;;
  *) sed -n 2,5p "$0" >&2 && exit 2 ;;
esac
