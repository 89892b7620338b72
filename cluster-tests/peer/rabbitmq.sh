#!/usr/bin/env bash
# RabbitMQ 4.3 as a real cluster on this machine, to compare Quorate with: `make bench` measures it, and
# `chaos --against` loads it while cluster-tests/faults/rabbitmq breaks its nodes. It comes from Debian's next release,
# forky, and lives in a folder of its own, into which its processes are confined with chroot. Needs root and Debian's apt.
#   rabbitmq.sh install          install it, unless it is there, and check its version: 2 to 5 minutes, 0.4 GB
#   rabbitmq.sh version          print the version that is installed; fails if there is none
#   rabbitmq.sh start [N]        start those of the nodes 1 to N (default 3) that do not run; wait until all are one cluster
#   rabbitmq.sh ctl NODE ARGS…   rabbitmqctl on a node, as in: ctl 1 cluster_status
#   rabbitmq.sh pids             the process ids of the nodes that run
#   rabbitmq.sh uris [N]         the AMQP addresses of N nodes (default 3)
#   rabbitmq.sh management [N]   the HTTP addresses of their management plugin
#   rabbitmq.sh stop             stop all nodes, and Erlang's port mapper (epmd), which they have started
#   rabbitmq.sh wipe             stop, and delete queues, messages, settings and logs of all nodes; they start anew
#   rabbitmq.sh remove           stop, and delete the whole installation
# PEER_ROOT      where installations are kept (default: peer in QUORATE_CACHE_DIR, which is ~/.cache/quorate)
# PEER_SUITE     forky (default), or trixie, which has RabbitMQ 4.0
# PEER_PLUGINS   plugins of the nodes, which are read when a node starts, with commas (default rabbitmq_management)
# All ports are of 127.0.0.1: AMQP 5681, 5682, …; HTTP 15681, …; between the nodes 25681, … and 4369 (epmd). A plugin
# with a port of its own, such as rabbitmq_stream, opens it on all addresses. The user is guest, the password guest.
set -euo pipefail

suite=${PEER_SUITE:-forky}
# As the kernel shows it for the processes whose root it is.
root=$(realpath -m "${PEER_ROOT:-${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/peer}/$suite")
NODES_MAX=9
START_SECONDS_MAX=300
STOP_SECONDS_MAX=60

fail() { echo "rabbitmq.sh: $*" >&2; exit 1; }
need_root() { [ "$(id -u)" = 0 ] || fail "'$1' needs root, for chroot and mounts"; }

# The version that the suite is here for.
case $suite in
  forky) wanted=4.3 ;;
  trixie) wanted=4.0 ;;
  *) fail "PEER_SUITE is '$suite': it is forky or trixie" ;;
esac

# ------------------------------------------------------------------------------------------------------- installation

# in_root FOLDER COMMAND…: runs the command with the folder as its root. Only the command and its children see what is
# mounted for them, so nothing is left to unmount when they have ended.
in_root() {
  # shellcheck disable=SC2016 # the inner bash expands these
  unshare --mount bash -euc '
    for folder in proc dev sys; do mount --rbind "/$folder" "$0/$folder"; done
    exec chroot "$0" "$@"' "$@"
}

# The version of the package, or nothing where it is not completely installed.
version() {
  local state
  state=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Status} ${Version}' rabbitmq-server 2>/dev/null) || return 0
  [[ $state != "install ok installed "* ]] || echo "${state##* }"
}

need_installation() {
  [ -n "$(version)" ] || fail "RabbitMQ is not installed in $root: make peer, or rabbitmq.sh install"
}

# A minimal Debian. A folder that is there is complete: it gets its name at the end.
install_debian() {
  local mirror
  [ ! -d "$root" ] || return 0
  command -v debootstrap >/dev/null || { apt-get update -q; apt-get install -y -q debootstrap; }
  mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
  rm -rf --one-file-system "$root.part"
  mkdir -p "$root.part"
  # The debootstrap of an older Debian knows no newer suite by its name; all of them are made as sid is.
  unshare --mount debootstrap --variant=minbase "$suite" "$root.part" "${mirror:-http://deb.debian.org/debian}" \
    /usr/share/debootstrap/scripts/sid || fail "debootstrap has failed: see $root.part/debootstrap/debootstrap.log"
  mv "$root.part" "$root"
}

install_rabbitmq() {
  # This machine's names, and its apt's settings and certificates where it reaches the mirror by a proxy.
  cp /etc/hosts "$root/etc/hosts"
  cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
  mkdir -p "$root/etc/ssl/certs"
  [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  # Tells Debian's packages to start no service.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
  in_root "$root" apt-get update -q
  in_root "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends rabbitmq-server
}

install() {
  install_debian
  [ -n "$(version)" ] || install_rabbitmq
  case $(version) in
    '') fail "rabbitmq-server is not installed in $root, though apt-get has not failed" ;;
    "$wanted".*) echo "RabbitMQ $(version) is installed in $root" ;;
    *) fail "RabbitMQ $(version) is installed in $root, not $wanted: the suite $suite has moved on" ;;
  esac
}

# ------------------------------------------------------------------------------------------------------------- one node

node_is_valid() { [[ $1 =~ ^[1-9]$ ]] || fail "'$1' is not a number of nodes, or of a node: 1 to $NODES_MAX"; }

# in_node NODE COMMAND…: runs a program of RabbitMQ with the environment of that node.
in_node() {
  local node=$1 home=/peer/$1
  local loopback='-kernel inet_dist_use_interface {127,0,0,1}'
  shift
  in_root "$root" env -i PATH=/usr/lib/rabbitmq/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/peer LANG=C.UTF-8 \
    ERL_EPMD_ADDRESS=127.0.0.1 \
    RABBITMQ_NODENAME="rabbit$node@localhost" \
    RABBITMQ_DIST_PORT=$((25680 + node)) \
    RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins" \
    RABBITMQ_MNESIA_BASE="$home/data" \
    RABBITMQ_LOG_BASE="$home/log" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$loopback" \
    RABBITMQ_CTL_ERL_ARGS="$loopback" \
    "$@"
}

# Whether a process is one of this installation: then it was started by this script.
has_our_root() { [ "$(readlink "/proc/$1/root")" = "$root" ]; }

# The process of a node, or nothing. rabbitmqctl is a beam.smp too, with the same environment; a server begins with `boot`.
pid_of() {
  local pid
  for pid in $(pgrep -x beam.smp); do
    has_our_root "$pid" || continue
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- '-s rabbit boot ' || continue
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "RABBITMQ_NODENAME=rabbit$1@localhost" || continue
    echo "$pid"
  done
}

pids() {
  local node
  for node in $(seq $NODES_MAX); do pid_of "$node"; done
}

# configure NODE N: the files of a node of a cluster of N.
configure() {
  local node=$1 peer home=$root/peer/$1
  mkdir -p "$home/data" "$home/log"
  cat >"$home/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$((5680 + node))
management.tcp.ip = 127.0.0.1
management.tcp.port = $((15680 + node))
disk_free_limit.absolute = 1GB
vm_memory_high_watermark.relative = 0.25
# What clients of classic queues still use, and RabbitMQ refuses unless told otherwise.
deprecated_features.permit.transient_nonexcl_queues = true
deprecated_features.permit.global_qos = true
log.file.level = warning
# A node without data asks these for the cluster, and joins it.
cluster_formation.peer_discovery_backend = classic_config
CONF
  for peer in $(seq "$2"); do
    echo "cluster_formation.classic_config.nodes.$peer = rabbit$peer@localhost" >>"$home/rabbitmq.conf"
  done
  echo "[${PEER_PLUGINS:-rabbitmq_management}]." >"$home/plugins"
}

# The secret by which nodes and rabbitmqctl know each other.
share_cookie() {
  local cookie=$root/peer/.erlang.cookie
  [ ! -e "$cookie" ] || return 0
  (umask 077 && mkdir -p "$root/peer" && head -c 24 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' >"$cookie.new")
  chmod 400 "$cookie.new"
  mv "$cookie.new" "$cookie"
}

# await NODE: waits until it has started.
await() {
  local output=$root/peer/$1/output
  until in_node "$1" rabbitmqctl -q await_startup --timeout 10 >/dev/null 2>&1; do
    [ -n "$(pid_of "$1")" ] || { tail -n 30 "$output" >&2; fail "node $1 has ended; its output is $output"; }
    [ $SECONDS -lt $START_SECONDS_MAX ] || fail "node $1 has not started within $START_SECONDS_MAX s: see $output"
    sleep 1
  done
}

# ---------------------------------------------------------------------------------------------------------- the cluster

start() {
  local node
  share_cookie
  for node in $(seq "$1"); do
    [ -z "$(pid_of "$node")" ] || continue
    configure "$node" "$1"
    (cd / && in_node "$node" setsid rabbitmq-server) >"$root/peer/$node/output" 2>&1 </dev/null &
  done
  for node in $(seq "$1"); do await "$node"; done
  in_node 1 rabbitmqctl -q await_online_nodes "$1" --timeout 60 >/dev/null ||
    fail "the $1 nodes are not one cluster: see rabbitmq.sh ctl 1 cluster_status"
  echo "$1 nodes of RabbitMQ $(version) run as one cluster"
}

# ends PID SECONDS: whether the process ends within that time. One that has ended has no root any more.
ends() {
  local until=$((SECONDS + $2))
  while has_our_root "$1"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.1
  done
}

end() {
  ! ends "$1" $STOP_SECONDS_MAX || return 0
  echo "process $1 has not ended within $STOP_SECONDS_MAX s, and is killed" >&2
  kill -KILL "$1"
  ends "$1" $STOP_SECONDS_MAX || fail "process $1 does not end"
}

# Stops all at once. A node that a test has paused has to go on before it can stop.
stop() {
  local pid all
  all=$(pids)
  for pid in $all; do kill -TERM "$pid" && kill -CONT "$pid"; done
  for pid in $all; do end "$pid"; done
  for pid in $(pgrep -x epmd); do
    ! has_our_root "$pid" || kill -TERM "$pid"
  done
}

wipe() {
  stop
  rm -rf --one-file-system "$root/peer"
  echo "queues, messages, settings and logs of all nodes are deleted; RabbitMQ stays installed in $root"
}

# Mounts there are none of this script's, but perhaps of somebody's who has worked there; they must not be deleted into.
remove() {
  local mounted
  stop
  for mounted in $(awk -v below="$root/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | tac); do
    umount "$mounted" || fail "$mounted cannot be unmounted, so nothing is deleted"
  done
  rm -rf --one-file-system "$root" "$root.part"
  echo "$root is deleted"
}

# addresses N FORMAT PORT: an address a node, with the port of node 0.
addresses() {
  local node
  # shellcheck disable=SC2059 # the format is one of ours, below
  for node in $(seq "$1"); do printf "$2\n" $(($3 + node)); done
}

verb=${1:-}
case $verb in
  install | start | ctl | stop | wipe | remove) need_root "$verb" ;;
esac
case $verb in
  start | ctl) need_installation ;;
esac
case $verb in
  start | uris | management) node_is_valid "${2:-3}" ;;
  ctl) node_is_valid "${2:-}" ;;
esac
case $verb in
  install) install ;;
  version) need_installation && version ;;
  start) start "${2:-3}" ;;
  ctl) in_node "$2" rabbitmqctl "${@:3}" ;;
  pids) pids ;;
  uris) addresses "${2:-3}" 'amqp://guest:guest@127.0.0.1:%d/%%2F' 5680 ;;
  management) addresses "${2:-3}" 'http://127.0.0.1:%d' 15680 ;;
  stop) stop ;;
  wipe) wipe ;;
  remove) remove ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
