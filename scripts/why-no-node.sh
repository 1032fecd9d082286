#!/usr/bin/env bash
# Print why this host cannot run a node; nothing if it can. It asks what host.Unfit (cluster/host) does,
# since it runs before anything is compiled; change both.
set -euo pipefail
if [[ "$(uname -s)" != Linux ]]; then
  echo "this is not Linux"
elif [[ "$(id -u)" != 0 ]]; then
  echo "a node needs root"
elif [[ ! -d /sys/fs/cgroup ]] || ! grep -q cgroup /proc/filesystems; then
  echo "there are no cgroups"
elif [[ "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" -lt 2 ]]; then # nproc obeys them, and Go does not
  echo "a partitioned node needs two CPUs"
fi
