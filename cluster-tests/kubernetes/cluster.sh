#!/usr/bin/env bash
# A real Kubernetes cluster on one machine, without Docker and without a registry of images. It runs in namespaces of its
# own: the network, the mounts, the processes and the sysctls of the machine stay as they are, but for Debian packages
# that are installed. Needs root, and Go 1.24 or newer to be built. Three nodes take about 1 GiB of memory.
#   cluster.sh build                      compile and keep what is missing: some 25 minutes the first time, then seconds
#   cluster.sh up [NODES]                 start a cluster of 1 to 9 nodes (default 1) and wait until each is Ready
#   cluster.sh down                       end it and delete all that it has made; what `build` has made stays
#   cluster.sh status                     its components with their memory, nodes, pods and volumes
#   cluster.sh env                        lines for eval: PATH with kubectl and helm, and KUBECONFIG
#   cluster.sh kubeconfig                 the path of a kubeconfig that works on this machine
#   cluster.sh image NAME BINARY [FILE]   make an image of a binary, its libraries and busybox, and load it; FILE keeps it
#   cluster.sh load-image FILE…           load images from docker or OCI archives into every node
#   cluster.sh exec COMMAND…              run it in the cluster's network, with the names of pods and services
#   cluster.sh node N cut | heal          pull and plug the node's network cable
#   cluster.sh node N stop | start        kill the node with all its pods; start it again
#   cluster.sh node N exec COMMAND…       run it in the network and the mounts of the node, as: ctr -n k8s.io images list
# QUORATE_K8S_NAME   the cluster's name (default dev); clusters with different names run side by side
# QUORATE_K8S_DIR    what `build` makes, 0.6 GB (default: k8s in QUORATE_CACHE_DIR, which is ~/.cache/quorate)
# QUORATE_K8S_RUN    files of the cluster: log/ of each component, volumes/ (default: quorate-k8s-NAME in TMPDIR or /tmp)
# QUORATE_K8S_PORT   the port of its API on 127.0.0.1 (default: the first that is free from 16443)
# Volumes: the StorageClass `standard` makes folders that every node sees; their size is not enforced. What is missing:
# network policies have no effect, there are no load balancers and no ingress controller, and no way out of its network.
set -euo pipefail
parts=$(cd "$(dirname "${BASH_SOURCE[0]}")/cluster" && pwd)
# shellcheck source=cluster/common.sh source-path=SCRIPTDIR
source "$parts/common.sh"
# shellcheck source=cluster/certificates.sh source-path=SCRIPTDIR
source "$parts/certificates.sh"

# ------------------------------------------------------------------------------------------------------- its namespaces

# The first process of the cluster's namespaces, as this machine numbers it.
first_process() {
  local holder
  holder=$(alive "$run/namespaces") && child_of "$holder"
}
is_up() { first_process >/dev/null; }
need_up() { is_up || fail "the cluster $name is not up: cluster.sh up"; }

# inside COMMAND…: in the namespaces of the cluster.
inside() { nsenter --target "$(first_process)" --mount --net --pid --wd="$PWD" -- "$@"; }

# on_node N COMMAND…: in the namespaces of the node.
on_node() { inside "$parts/enter_node.sh" "$@"; }

# ------------------------------------------------------------------------------------------------------------- up, down

# The files of a cluster of so many nodes. Pods look names up at CoreDNS only, not where this machine does.
prepare() {
  mkdir -p "$run"/{pki,log,inner,volumes,etcd}
  echo "$1" >"$run/nodes"
  certificates "$1"
  printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' \
    "$DNS_ADDRESS" >"$run/resolv.conf"
  touch "$run/no-resolv.conf"
  cat >"$run/Corefile" <<COREFILE
.:53 {
  bind $CONTROL_ADDRESS
  errors
  ready $CONTROL_ADDRESS:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $run/pki/coredns.conf
    pods insecure
    ttl 5
  }
  loadbalance
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
COREFILE
  "$parts/mkimg.py" pause:1 "$run/pause.tar" --entry /pause "$bin/pause:/pause"
}

free_port() {
  local port=16443
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo $port
}

# Ready are the API, with the account that pods run as by default, and every node.
all_are_ready() {
  [ -e "$run/inner/up" ] && kubectl get serviceaccount default &&
    [ "$(kubectl get nodes --no-headers | grep -cw Ready)" = "$(nodes)" ]
}
await_ready() {
  local until=$((SECONDS + 180))
  export KUBECONFIG=$run/kubeconfig
  until all_are_ready >/dev/null 2>&1; do
    is_up || fail "the cluster $name has ended: see $run/log"
    [ $SECONDS -lt $until ] || fail "the cluster $name is not ready after 180 s: see $run/log"
    sleep 0.5
  done
  kubectl get nodes
}

start_namespaces() {
  setsid unshare --pid --fork --kill-child --mount --net --mount-proc --propagation private \
    tini -- "$parts/control.sh" >"$run/log/control.log" 2>&1 </dev/null &
  remember $! "$run/namespaces"
}

# Programs on this machine reach the API by a port, which is connected to the socket that control.sh makes.
open_port() {
  local port=${QUORATE_K8S_PORT:-$(free_port)}
  poll 60 test -S "$run/api.sock" || fail "the API server has not started: see $run/log"
  setsid socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$run/api.sock" \
    >"$run/log/port.log" 2>&1 </dev/null &
  remember $! "$run/port"
  kubeconfig admin "https://127.0.0.1:$port" "$run/kubeconfig"
}

up() {
  [[ $1 =~ ^[1-9]$ ]] || fail "a cluster has 1 to $NODES_MAX nodes, not '$1'"
  if is_up; then
    [ "$(nodes)" = "$1" ] || fail "the cluster $name runs with $(nodes) nodes, not $1: cluster.sh down first"
  else
    "$parts/build.sh" >&2
    down
    prepare "$1"
    start_namespaces
    open_port
  fi
  await_ready
}

# gone FILE: whether the process that the file names has ended; one that nobody has waited for counts.
gone() {
  local pid
  pid=$(alive "$1") || return 0
  grep -q '^State:.Z' "/proc/$pid/status"
}

end_processes() {
  local pid
  # With the first process of a namespace the kernel ends all others.
  pid=$(first_process) || pid=$(alive "$run/namespaces") || pid=
  [ -z "$pid" ] || kill -KILL "$pid"
  poll 30 gone "$run/namespaces" || fail "process $pid, the first of the cluster $name, does not end"
  ! pid=$(alive "$run/port") || kill "$pid"
}

# A group is in use for a moment after its last process has ended.
delete_groups() {
  local hierarchy
  for hierarchy in $(hierarchies); do
    [ -d "$hierarchy$cgroup" ] || continue
    poll 10 find "$hierarchy$cgroup" -depth -type d -exec rmdir {} + || echo "still in use: $hierarchy$cgroup" >&2
  done
}

down() {
  end_processes
  delete_groups
  ! grep -q " $run/" /proc/self/mounts || fail "something is mounted below $run: unmount it first"
  rm -rf --one-file-system "$run"
}

# --------------------------------------------------------------------------------------------------------- other verbs

status() {
  local node
  inside "$parts/components.sh"
  for node in $(seq "$(nodes)"); do on_node "$node" "$parts/components.sh" "$node" || true; done
  KUBECONFIG=$run/kubeconfig kubectl get nodes,pods,pv -A -o wide
}

load_image() {
  local file node
  for file; do
    [ -f "$file" ] || fail "there is no file $file"
    for node in $(seq "$(nodes)"); do on_node "$node" ctr -n k8s.io images import - <"$file"; done
  done
}

# image NAME BINARY [FILE]
image() {
  local file=${3:-} target
  target=/usr/local/bin/$(basename "$2")
  [ -f "$2" ] || fail "there is no binary $2"
  [ -n "$file" ] || file=$(mktemp --suffix=.tar)
  "$parts/mkimg.py" "$1" "$file" --busybox --entry "$target" "$2:$target"
  ! is_up || load_image "$file"
  [ -n "${3:-}" ] || rm "$file"
}

NODE_USAGE="node N cut | heal | stop | start | exec COMMAND…"
node() {
  local node=$1
  [[ $node =~ ^[1-9]$ && $node -le $(nodes) ]] || fail "'$node' is none of the $(nodes) nodes: $NODE_USAGE"
  case $2 in
    cut) inside ip link set "v$node" down ;;
    heal) inside ip link set "v$node" up ;;
    stop) inside kill -KILL "$(cut -d' ' -f1 "$run/inner/node$node")" ;;
    start) inside "$parts/plug.sh" "$node" ;;
    exec) on_node "$node" "${@:3}" ;;
    *) fail "'$2' is unknown: $NODE_USAGE" ;;
  esac
}

verb=${1:-}
case $verb in
  build | up | down | status | image | load-image | exec | node)
    [ "$(id -u)" = 0 ] || fail "'$verb' needs root, for namespaces and mounts" ;;
esac
case $verb in
  status | kubeconfig | load-image | exec | node) need_up ;;
esac
case $verb in
  build) "$parts/build.sh" ;;
  # Without a number, a cluster that runs may have any.
  up) up "${2:-$(if is_up; then nodes; else echo 1; fi)}" ;;
  down) down ;;
  status) status ;;
  env) echo "export PATH=$bin:\$PATH KUBECONFIG=$run/kubeconfig" ;;
  kubeconfig) echo "$run/kubeconfig" ;;
  image) [ $# -ge 3 ] || fail "image NAME BINARY [FILE]"; image "${@:2}" ;;
  load-image) [ $# -ge 2 ] || fail "load-image FILE…"; load_image "${@:2}" ;;
  exec) [ $# -ge 2 ] || fail "exec COMMAND…"; KUBECONFIG=$run/pki/admin.conf inside "${@:2}" ;;
  node) [ $# -ge 3 ] || fail "$NODE_USAGE"; node "${@:2}" ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
