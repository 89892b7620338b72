#!/usr/bin/env bash
# Runs as the first process of a node's namespaces, which plug.sh makes: containerd, the kubelet and kube-proxy, with
# folders, a network and a control group of their own. node.sh N. When it ends, the kernel ends all of them, with all pods.
set -euo pipefail
# shellcheck source=common.sh source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

node=$1
home=$run/node$node
address=$(node_address "$node")

# What the node's programs write belongs to this node only, except for the volumes, which all nodes see.
own_folders() {
  mkdir -p "$home"/{lib,log,cni}
  # The kubelet and containers see each other's mounts.
  mount --make-rshared /
  mount -t tmpfs tmpfs /run
  mkdir -p /run/netns
  mount --bind "$home/lib" /var/lib
  mount --bind "$home/log" /var/log
  # What is mounted on a volume here, to fill it, stays here.
  mount --bind "$run/volumes" "$run/volumes"
  mount --make-private "$run/volumes"
}

# The kubelet sets these for the whole machine if they have other values. It is shown files with the values instead.
own_sysctls() {
  local want path file
  mkdir -p /run/sysctl
  for want in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    path=/proc/sys/${want%=*}
    [ "$(cat "$path")" != "${want#*=}" ] || continue
    file=/run/sysctl/$(tr / . <<<"${want%=*}")
    echo "${want#*=}" >"$file"
    mount --bind "$file" "$path"
  done
}

# In each hierarchy of control groups (there is one with cgroup v2), a group of the cluster, and in it one of the node.
own_groups() {
  local hierarchy file
  for hierarchy in $(hierarchies); do
    mkdir -p "$hierarchy$cgroup/node$node"
    # With cgroup v1 a new group may use no processor and no memory before it is given some.
    for file in cpuset.cpus cpuset.mems; do
      [ -e "$hierarchy/$file" ] || continue
      cat "$hierarchy/$file" >"$hierarchy$cgroup/$file"
      cat "$hierarchy/$file" >"$hierarchy$cgroup/node$node/$file"
    done
    # With cgroup v2 alone a group's children are controlled by what the group passes on.
    [ "$hierarchy" = /sys/fs/cgroup ] || continue
    for file in "$hierarchy" "$hierarchy$cgroup" "$hierarchy$cgroup/node$node"; do pass_controllers "$file"; done
  done
}

pass_controllers() {
  local controller controllers
  read -ra controllers <"$1/cgroup.controllers"
  for controller in "${controllers[@]}"; do echo "+$controller" >"$1/cgroup.subtree_control"; done
}

# The node's end of the cable, and routes to the pods of the others.
network() {
  local other
  ip link set lo up
  poll 30 ip link set eth0 up
  ip addr add "$address/24" dev eth0
  ip route add default via "$CONTROL_ADDRESS"
  for other in $(seq $NODES_MAX); do
    [ "$other" = "$node" ] || ip route add "$(pods_of "$other")" via "$(node_address "$other")"
  done
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# The network of pods: a bridge on each node.
configure_pods() {
  cat >"$home/cni/10-bridge.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pods_of "$node")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
}

# restrict_oom_score_adj: containers get no lower score than this process may give them. Without it none starts where
# root lacks CAP_SYS_RESOURCE. The plugins that are disabled need kernel modules or devices.
configure_containerd() {
  cat >"$home/containerd.toml" <<TOML
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.tracing",
]
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$home/cni"
TOML
}

# No image is ever collected, since none can be pulled again. oomScoreAdj as in configure_containerd.
configure_kubelet() {
  cat >"$home/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$run/pki/ca.crt"}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: $cgroup/node$node
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [$DNS_ADDRESS]
clusterDomain: cluster.local
resolvConf: $run/no-resolv.conf
volumePluginDir: /var/lib/kubelet/exec-plugins
evictionHard: {memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
YAML
}

start_containerd() {
  component "$node/containerd" containerd --config "$home/containerd.toml"
  poll 120 ctr version
  ctr -n k8s.io images import "$run/pause.tar"
}

start_kubelet() {
  component "$node/kubelet" kubelet \
    --config "$home/kubelet.yaml" \
    --kubeconfig "$run/pki/node$node.conf" \
    --hostname-override "node$node" \
    --node-ip "$address" \
    --node-labels "topology.kubernetes.io/zone=zone$node"
}

# It leaves the limits of connection tracking alone, which are the whole machine's.
start_kube_proxy() {
  component "$node/kube-proxy" kube-proxy \
    --kubeconfig "$run/pki/proxy.conf" \
    --hostname-override "node$node" \
    --cluster-cidr "$PODS" \
    --proxy-mode iptables \
    --oom-score-adj 0 \
    --conntrack-max-per-core 0 \
    --conntrack-min 0 \
    --conntrack-tcp-timeout-established 0s \
    --conntrack-tcp-timeout-close-wait 0s
}

own_folders
own_sysctls
own_groups
network
configure_pods
configure_containerd
configure_kubelet
start_containerd
poll 120 kubectl --kubeconfig "$run/pki/node$node.conf" get --raw /readyz
start_kubelet
start_kube_proxy
wait
