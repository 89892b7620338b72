#!/usr/bin/env bash
# Runs as the first process of a cluster's namespaces, which `cluster.sh up` makes: the network between the nodes, the
# control plane (etcd, API server, controllers, scheduler), the DNS server, the volumes, and namespaces for each node.
# When it ends, the kernel ends all of them.
set -euo pipefail
# shellcheck source=common.sh source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pki=$run/pki
etcd_address=http://127.0.0.1:2379

# Programs that run here, such as load generators, find the services of the cluster by their names. The file may be a
# link into /run, which is empty here.
use_cluster_dns() {
  local resolv
  resolv=$(readlink -m /etc/resolv.conf)
  mkdir -p "$(dirname "$resolv")"
  [ -e "$resolv" ] || touch "$resolv"
  mount --bind "$run/resolv.conf" "$resolv"
}

# The bridge that the nodes are plugged into.
network() {
  ip link set lo up
  ip link add br0 type bridge
  ip addr add "$CONTROL_ADDRESS/24" dev br0
  ip link set br0 up
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# Without fsync: its data is of use only as long as it runs.
start_etcd() {
  component etcd etcd \
    --data-dir "$run/etcd" \
    --listen-client-urls "$etcd_address" \
    --advertise-client-urls "$etcd_address" \
    --listen-peer-urls http://127.0.0.1:2380 \
    --unsafe-no-fsync \
    --log-level warn
}

start_api_server() {
  component apiserver kube-apiserver \
    --etcd-servers "$etcd_address" \
    --secure-port 6443 \
    --bind-address 0.0.0.0 \
    --advertise-address "$CONTROL_ADDRESS" \
    --cert-dir "$pki" \
    --tls-cert-file "$pki/api.crt" \
    --tls-private-key-file "$pki/api.key" \
    --client-ca-file "$pki/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$pki/sa.key" \
    --service-account-signing-key-file "$pki/sa.key" \
    --service-cluster-ip-range "$SERVICES" \
    --authorization-mode Node,RBAC \
    --enable-admission-plugins NodeRestriction \
    --kubelet-client-certificate "$pki/admin.crt" \
    --kubelet-client-key "$pki/admin.key" \
    --kubelet-preferred-address-types InternalIP \
    --allow-privileged=true
}

# It finds a node lost after 20 s of silence, not after 50, so that tests of that take less time.
start_controllers() {
  component controller-manager kube-controller-manager \
    --kubeconfig "$pki/controller-manager.conf" \
    --authentication-kubeconfig "$pki/controller-manager.conf" \
    --authorization-kubeconfig "$pki/controller-manager.conf" \
    --service-account-private-key-file "$pki/sa.key" \
    --root-ca-file "$pki/ca.crt" \
    --cluster-signing-cert-file "$pki/ca.crt" \
    --cluster-signing-key-file "$pki/ca.key" \
    --use-service-account-credentials=true \
    --leader-elect=false \
    --bind-address 127.0.0.1 \
    --flex-volume-plugin-dir "$run/flexvolume" \
    --allocate-node-cidrs=false \
    --node-monitor-grace-period=20s \
    --cert-dir "$pki"
}

start_scheduler() {
  component scheduler kube-scheduler \
    --kubeconfig "$pki/scheduler.conf" \
    --authentication-kubeconfig "$pki/scheduler.conf" \
    --authorization-kubeconfig "$pki/scheduler.conf" \
    --leader-elect=false \
    --bind-address 127.0.0.1 \
    --cert-dir "$pki"
}

mount -t tmpfs tmpfs /run
use_cluster_dns
network
start_etcd
start_api_server
for node in $(seq "$(nodes)"); do "$here/plug.sh" "$node"; done
export KUBECONFIG=$pki/admin.conf
poll 120 kubectl get --raw /readyz
# By a socket in the file system, which this machine sees, unlike the network in here.
component api-socket socat "UNIX-LISTEN:$run/api.sock,fork,mode=600" TCP:127.0.0.1:6443
start_controllers
start_scheduler
poll 120 kubectl get namespace kube-system
poll 120 kubectl apply -f "$here/system.yaml"
component coredns coredns -conf "$run/Corefile"
component provisioner python3 "$here/provisioner.py" "$run/volumes" "$pki"
touch "$run/inner/up"
wait
