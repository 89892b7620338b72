#!/usr/bin/env bash
# Starts a node of the cluster: its namespaces, with node.sh in them, and its cable to the bridge. plug.sh N, in the
# namespaces of the cluster. control.sh calls it for each node, and `cluster.sh node N start` for one that was stopped.
set -euo pipefail
# shellcheck source=common.sh source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

node=$1
address=$(node_address "$node")
! alive "$run/inner/node$node" >/dev/null || fail "node $node runs already"
ip link del "v$node" 2>/dev/null || true
mkdir -p "$run/inner/$node"
setsid unshare --pid --fork --kill-child --net --mount --mount-proc --propagation private \
  tini -- "$here/node.sh" "$node" >>"$run/log/node$node.log" 2>&1 </dev/null &
holder=$!
remember $holder "$run/inner/node$node"
has_own_network() { [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
poll 30 has_own_network
ip link add "v$node" type veth peer name eth0 netns $holder
ip link set "v$node" master br0 up
ip route replace "$(pods_of "$node")" via "$address"
# Programs in the cluster's own network reach services by the rules of the first node's kube-proxy.
ip route replace "$SERVICES" via "$(node_address 1)"
