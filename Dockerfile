# The image of Quorate: the binary, its C and C++ libraries, and no shell. `quorate server` is the default command.
#   docker build -t quorate:0.1.0 .
# Needs BuildKit or buildah, for the cache mounts.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
# Of the same Debian release as the image above, since the binary needs its glibc and libstdc++.
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST_IMAGE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ libclang-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /quorate
COPY Cargo.toml Cargo.lock Makefile ./
COPY .cargo .cargo
COPY .ci .ci
COPY proto proto
COPY src src
# A member of the workspace: cargo reads its manifest.
COPY cluster-tests cluster-tests
# RocksDB and dependencies are kept in a cache between builds, one for each architecture. Without its debug information
# the binary has a quarter of its size; names of functions in a backtrace stay.
RUN --mount=type=cache,target=/cache --mount=type=cache,target=/usr/local/cargo/registry \
    export QUORATE_CACHE_DIR="/cache/$(uname -m)" \
    && export CARGO_TARGET_DIR="$QUORATE_CACHE_DIR/target" \
        ROCKSDB_LIB_DIR="$QUORATE_CACHE_DIR/rocksdb" ROCKSDB_STATIC=1 \
    && make rocksdb \
    && cargo build --release --locked --package quorate \
    && mkdir -p /image/usr/local/bin /data \
    && strip --strip-debug -o /image/usr/local/bin/quorate "$CARGO_TARGET_DIR/release/quorate" \
    && for name in rabbitmqctl rabbitmq-upgrade rabbitmq-queues rabbitmq-diagnostics rabbitmq-plugins; do \
        ln -s quorate "/image/usr/local/bin/$name" || exit 1; done

FROM ${RUNTIME_IMAGE}
COPY --from=build /image /
# Everything that a node writes is here, so that the rest may be read-only. The data has a folder of its own, since the
# root of a volume may belong to root and contain lost+found.
COPY --from=build --chown=65532:65532 /data /var/lib/quorate
ENV QUORATE_DATA_DIR=/var/lib/quorate/data QUORATE_CLUSTER_SECRET_FILE=/var/lib/quorate/secret
VOLUME /var/lib/quorate
USER 65532:65532
EXPOSE 5671 5672 7672 15671 15672
ENTRYPOINT ["/usr/local/bin/quorate"]
CMD ["server"]
