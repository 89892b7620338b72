#!/usr/bin/env bash
# The default command of an image as the chart runs it: not as root, on a root file system that cannot be written, with
# its volume and a network of its own; then what the chart's probes and operators call in it. image.sh calls it.
#   in_image.sh FOLDER NAME=VALUE…   the image's files, and its environment
set -euo pipefail
if [ "${IN_IMAGE:-}" != yes ]; then IN_IMAGE=yes exec unshare --net --mount --fork "$0" "$@"; fi
image=$1
environment=("${@:2}")
volume=$image/var/lib/quorate
run=(env -i "${environment[@]}" "$(command -v chroot)" --userspec=65532:65532 "$image")
in_image() { "${run[@]}" "/usr/local/bin/$1" "${@:2}"; }
fail() { echo "FAILED: in the image: $*" >&2; cat "$volume/log" >&2; exit 1; }

ip link set lo up
mount --bind "$image" "$image"
mount -o remount,bind,ro "$image"
mount -t tmpfs -o uid=65532,gid=65532 tmpfs "$volume"
"${run[@]}" /usr/local/bin/quorate server >"$volume/log" 2>&1 &
server=$!
trap 'kill -9 $server 2>/dev/null || true' EXIT
until in_image quorate ctl ping >/dev/null 2>&1; do
  [ $SECONDS -lt 30 ] || fail "the server does not answer"
  sleep 0.1
done
for verb in 'quorate ctl await_startup --timeout 30' 'rabbitmq-diagnostics check_port_connectivity' \
  'rabbitmqctl add_user image secret' 'rabbitmq-queues check_if_node_is_quorum_critical' 'rabbitmq-upgrade await_online_quorum_plus_one' \
  'rabbitmq-upgrade revive' 'rabbitmq-plugins list' 'quorate ctl check_running'; do
  # shellcheck disable=SC2086
  in_image $verb >"$volume/said" 2>&1 || { cat "$volume/said" >&2; fail "$verb"; }
done
kill -TERM $server
wait $server || fail "the server does not end well"
