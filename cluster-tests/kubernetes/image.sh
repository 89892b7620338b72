#!/usr/bin/env bash
# Builds the image from the Dockerfile with buildah, on base images that are made from Debian's packages and this machine's
# Rust, so that no registry of images is needed; then checks it. `make image` calls it. Needs root.
#   QUORATE_CACHE_DIR   where images and the build's caches are kept
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/image
TAG=quorate:local
LIMIT_MIB=100
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
mkdir -p "$cache/tmp"
export TMPDIR=$cache/tmp
buildah() { command buildah --root "$cache/store" --runroot "$cache/run" "$@"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
exists() { buildah inspect --type image "$1" >/dev/null 2>&1; }

# What distroless/cc holds of what the binary needs: the C and C++ libraries and the certificates of authorities.
runtime_base() {
  local container folder packages
  container=$(buildah from scratch) folder=$(buildah mount "$container") packages=$(mktemp -d)
  chmod 755 "$packages"
  (cd "$packages" && apt-get download -q libc6 libstdc++6 libgcc-s1 ca-certificates tzdata >/dev/null)
  for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$folder"; done
  rm -rf "$folder/usr/bin" "$folder/usr/sbin" "$folder/sbin" "$folder/usr/share/doc" "$folder/usr/share/lintian" "$packages"
  mkdir -p "$folder/etc" "$folder/etc/ssl/certs" "$folder/tmp"
  chmod 1777 "$folder/tmp"
  cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
  printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$folder/etc/passwd"
  printf 'root:x:0:\nnonroot:x:65532:\n' >"$folder/etc/group"
  buildah umount "$container" >/dev/null
  buildah config --user 65532:65532 "$container"
  buildah commit -q --rm "$container" localhost/base-runtime >/dev/null
}

# What rust:bookworm holds of what the Dockerfile needs.
rust_base() {
  local container folder
  container=$(buildah from scratch) folder=$(buildah mount "$container")
  debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev,git bookworm "$folder" >"$cache/debootstrap.log" 2>&1 ||
    { tail "$cache/debootstrap.log" >&2; fail "debootstrap"; }
  tar -C "$(rustc --print sysroot)" --exclude=./share -c . | tar -C "$folder/usr/local" -x
  cp -r /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/"
  cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
  rm -rf "$folder/var/cache/apt/archives" && mkdir -p "$folder/var/cache/apt/archives/partial"
  buildah umount "$container" >/dev/null
  buildah config --env CARGO_HOME=/usr/local/cargo --env PATH=/usr/local/cargo/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "$container"
  buildah commit -q --rm "$container" localhost/base-rust >/dev/null
}

exists localhost/base-runtime || runtime_base
exists localhost/base-rust || rust_base
echo "base images are there after $SECONDS s"
buildah bud --pull-never --layers=false --build-arg RUST_IMAGE=localhost/base-rust --build-arg RUNTIME_IMAGE=localhost/base-runtime \
  -t "$TAG" "$top"

container=$(buildah from --pull-never "$TAG")
trap 'buildah rm "$container" >/dev/null' EXIT
folder=$(buildah mount "$container")
size=$(du -sm --apparent-size "$folder" | cut -f1)
[ "$size" -lt $LIMIT_MIB ] || fail "the image has $size MiB, at most $LIMIT_MIB MiB are allowed"
for shell in bin/sh usr/bin/sh bin/bash usr/bin/bash busybox; do [ ! -e "$folder/$shell" ] || fail "the image has a shell: /$shell"; done
[ "$(buildah inspect --format '{{.OCIv1.Config.User}}' "$container")" = 65532:65532 ] || fail "the image does not run as nonroot"
for name in rabbitmqctl rabbitmq-diagnostics rabbitmq-plugins rabbitmq-queues rabbitmq-upgrade; do
  [ "$(readlink "$folder/usr/local/bin/$name")" = quorate ] || fail "$name is not a link to quorate"
done
version=$(chroot --userspec=65532:65532 "$folder" /usr/local/bin/quorate --version) || fail "the binary does not run in the image"
chroot --userspec=65532:65532 "$folder" /usr/local/bin/rabbitmqctl --help >/dev/null || fail "rabbitmqctl does not run in the image"

read -ra environment <<<"$(buildah inspect --format '{{range .OCIv1.Config.Env}}{{.}} {{end}}' "$container")"
"$top/cluster-tests/kubernetes/in_image.sh" "$folder" "${environment[@]}"
echo "$version: an image of $size MiB without a shell, for nonroot, in which a server runs, after $SECONDS s"
