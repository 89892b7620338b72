#!/usr/bin/env bash
# Clients that nobody here wrote, against a running broker (guest/guest, virtual host /).
#   run.sh install                                      all clients into ${QUORATE_CACHE_DIR:-~/.cache/quorate}/interop
#   run.sh [--peer] [--only CLIENT] HOST:PORT [...]     runs all of them, or one: pika aio_pika amqplib amqp091 celery
# With three addresses some checks use different nodes. --peer: the broker is RabbitMQ 4.0, see decisions.md.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/interop
CLIENTS=(pika aio_pika amqplib amqp091 celery)
SECONDS_PER_CLIENT=600

# once NAME FILE COMMAND…: runs the command unless it has run with this very content of FILE.
once() {
  local name=$1 file=$2 stamp=$CACHE/$1.installed
  shift 2
  cmp -s "$file" "$stamp" && return
  echo "installing $name"
  "$@" && cp "$file" "$stamp"
}

python_client() {
  rm -rf "$CACHE/$1"
  python3 -m venv "$CACHE/$1"
  "$CACHE/$1/bin/pip" install -q --disable-pip-version-check -r "$HERE/$1/requirements.txt"
}

npm_client() {
  rm -rf "$CACHE/amqplib"
  mkdir -p "$CACHE/amqplib"
  cp "$HERE/amqplib/package.json" "$CACHE/amqplib/"
  npm install --prefix "$CACHE/amqplib" --no-package-lock --no-audit --no-fund --loglevel=error
}

install() {
  mkdir -p "$CACHE"
  case $1 in
    pika | aio_pika | celery) once "$1" "$HERE/$1/requirements.txt" python_client "$1" ;;
    amqplib) once amqplib "$HERE/amqplib/package.json" npm_client ;;
    amqp091) (cd "$HERE/amqp091" && go build -o "$CACHE/amqp091" .) ;; # go's own cache makes this quick
  esac
}

run() {
  local client=$1
  shift
  case $client in
    pika | aio_pika | celery) "$CACHE/$client/bin/python" -B "$HERE/$client/test_$client.py" "$@" ;;
    amqplib) NODE_PATH=$CACHE/amqplib/node_modules node "$HERE/amqplib/test.js" "$@" ;;
    amqp091) "$CACHE/amqp091" "$@" ;;
  esac
}

usage() {
  sed -n 2,5p "$0" >&2
  exit 2
}

if [ "${1:-}" = install ]; then
  [ $# = 1 ] || usage
  for client in "${CLIENTS[@]}"; do install "$client"; done
  exit
fi

flags=()
while [[ ${1:-} == --* ]]; do
  case $1 in
    --peer) flags+=(--peer) && shift ;;
    --only) [[ " ${CLIENTS[*]} " == *" ${2:-} "* ]] && CLIENTS=("$2") && shift 2 || usage ;;
    *) usage ;;
  esac
done
[ $# -gt 0 ] || usage

export -f run
export CACHE HERE
failed=()
for client in "${CLIENTS[@]}"; do
  echo "# $client"
  install "$client"
  timeout "$SECONDS_PER_CLIENT" bash -c 'run "$@"' run "$client" "${flags[@]}" "$@" || failed+=("$client")
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" && exit 1; }
