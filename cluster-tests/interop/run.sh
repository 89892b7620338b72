#!/usr/bin/env bash
# Clients and tools that nobody here wrote, against a running broker (guest/guest, virtual host /).
#   run.sh install [NAME...]                            all of them, or these, into ${QUORATE_CACHE_DIR:-~/.cache/quorate}/interop
#   run.sh [--peer] [--http HOST:PORT[,...]] [--only NAME] HOST:PORT [...]    runs all, or one:
#     clients: pika aio_pika amqplib amqp091 celery; tools, which use the HTTP API at --http: management
#     dashboard http_client rabbitmqadmin (the last two are the tests that these crates bring along, see README.md)
#   run.sh docs BINARY [PAGE...]                        the commands of README.md and docs, or of these pages
# With three addresses some checks use different nodes. --peer: the broker is RabbitMQ 4.0, see decisions.md.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/interop
CLIENTS=(pika aio_pika amqplib amqp091 celery)
TOOLS=(management dashboard http_client rabbitmqadmin)
# Starts clusters itself.
PAGES=docs
# Versions of the crates whose tests are run, and what cargo needs for those.
HTTP_CLIENT=rabbitmq_http_client-0.93.0
HTTP_CLIENT_FEATURES=async,native-tls,tabled,zeroize
RABBITMQADMIN=rabbitmqadmin-2.35.0
SECONDS_PER_CLIENT=3600
# Their tests wait for statistics.
SECONDS_PER_TOOL=7200
# Both crates share most of their dependencies.
export CARGO_TARGET_DIR=$CACHE/target CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0

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

# The source of a crate as the registry has it, with its tests, which are compiled.
crate() {
  local crate=$1 scratch
  shift
  if [ ! -e "$CACHE/$crate/Cargo.toml" ]; then
    scratch=$(mktemp -d)
    mkdir "$scratch/src"
    touch "$scratch/src/lib.rs"
    printf '[package]\nname = "fetched"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\n%s = "=%s"\n' \
      "${crate%-*}" "${crate##*-}" >"$scratch/Cargo.toml"
    cargo vendor --quiet --versioned-dirs --manifest-path "$scratch/Cargo.toml" "$scratch/vendor" >"$scratch/config"
    # Their settings have dependencies optimized, which takes longer than the tests.
    rm -rf "$scratch/vendor/$crate/.cargo"
    cp -r "$scratch/vendor/$crate" "$CACHE/"
    rm -rf "$scratch"
  fi
  (cd "$CACHE/$crate" && cargo test --quiet --locked --no-run --test integration "$@")
}

# debian PROGRAM PACKAGE FILE: a program of Debian's without the package that it comes in.
debian() {
  local scratch
  [ ! -e "$CACHE/$3" ] || return 0
  scratch=$(mktemp -d)
  chmod 755 "$scratch"
  (cd "$scratch" && apt-get -qq download "$2" && dpkg-deb --fsys-tarfile "$2"_*.deb | tar -x "./usr/bin/$1")
  cp "$scratch/usr/bin/$1" "$CACHE/$3"
  rm -rf "$scratch"
}

install() {
  mkdir -p "$CACHE"
  case $1 in
    docs) install pika ;; # what a reader would install
    pika | aio_pika | celery) once "$1" "$HERE/$1/requirements.txt" python_client "$1" ;;
    amqplib) once amqplib "$HERE/amqplib/package.json" npm_client ;;
    management)
      once management "$HERE/management/requirements.txt" python_client management
      debian rabbitmqadmin rabbitmq-server rabbitmqadmin-v1
      debian promtool prometheus promtool
      ;;
    dashboard)
      install management # for its AMQP client
      debian prometheus prometheus prometheus
      ;;
    http_client) crate "$HTTP_CLIENT" --features "$HTTP_CLIENT_FEATURES" ;;
    rabbitmqadmin) crate "$RABBITMQADMIN" ;;
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
    management) "$CACHE/management/bin/python" -B "$HERE/management/test_management.py" --rabbitmqadmin "$CACHE/rabbitmqadmin-v1" --promtool "$CACHE/promtool" --http "$HTTP" "$@" ;;
    dashboard) "$CACHE/management/bin/python" -B "$HERE/dashboard/test_dashboard.py" --prometheus "$CACHE/prometheus" --http "$HTTP" "$@" ;;
    http_client) suite "$client" "$HTTP_CLIENT" "$*" --features "$HTTP_CLIENT_FEATURES" ;;
    rabbitmqadmin) suite "$client" "$RABBITMQADMIN" "$*" ;;
  esac
}

# suite NAME CRATE ADDRESSES CARGO_ARGUMENT…: the crate's own tests, which know fixed ports only.
suite() {
  local name=$1 crate=$2 amqp=${3// /,}
  shift 3
  python3 -B "$HERE/suites/fixed_ports.py" "15672=$HTTP" "5672=$amqp" -- \
    python3 -B "$HERE/suites/suite.py" "$HERE/suites/$name.txt" "$CACHE/$crate" "$@"
}

usage() {
  sed -n 2,7p "$0" >&2
  exit 2
}

if [ "${1:-}" = install ]; then
  shift
  [ $# -gt 0 ] || set -- "${CLIENTS[@]}" "${TOOLS[@]}" "$PAGES"
  for client in "$@"; do
    [[ " ${CLIENTS[*]} ${TOOLS[*]} $PAGES " == *" $client "* ]] || usage
    install "$client"
  done
  exit
fi

if [ "${1:-}" = "$PAGES" ]; then
  shift
  [ $# -gt 0 ] || usage
  install "$PAGES"
  exec timeout "$SECONDS_PER_CLIENT" "$CACHE/pika/bin/python" -B "$HERE/docs/run_docs.py" "$@"
fi

flags=()
only=
HTTP=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --peer) flags+=(--peer) && shift ;;
    --http) HTTP=${2:-} && shift 2 || usage ;;
    --only) [[ " ${CLIENTS[*]} ${TOOLS[*]} " == *" ${2:-} "* ]] && only=$2 && shift 2 || usage ;;
    *) usage ;;
  esac
done
[ $# -gt 0 ] || usage
if [ -n "$HTTP" ]; then CLIENTS+=("${TOOLS[@]}"); fi
if [ -n "$only" ]; then
  [[ " ${CLIENTS[*]} " == *" $only "* ]] || usage
  CLIENTS=("$only")
fi

export -f run suite
export CACHE HERE HTTP HTTP_CLIENT HTTP_CLIENT_FEATURES RABBITMQADMIN
failed=()
for client in "${CLIENTS[@]}"; do
  echo "# $client"
  install "$client"
  seconds=$SECONDS_PER_CLIENT
  if [[ " ${TOOLS[*]} " == *" $client "* ]]; then seconds=$SECONDS_PER_TOOL; fi
  timeout "$seconds" bash -c 'run "$@"' run "$client" "${flags[@]}" "$@" || failed+=("$client")
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" && exit 1; }
