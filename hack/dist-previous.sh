#!/usr/bin/env bash
# Writes the images and the manifests of the version that users upgrade from to bin/previous/dist, with its own scripts. Without
# such a version, there is no bin/previous/dist.
#
#	hack/dist-previous.sh REGISTRY OS/ARCHITECTURE...
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf bin/previous
version=$(hack/previous.sh bin/previous)
[[ $version ]] || exit 0
VERSION=$version COMMIT=$(git rev-parse "$version^{commit}") SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$version") \
	make --no-print-directory -C bin/previous image dist "IMAGE_REGISTRY=$1" "PLATFORMS=${*:2}"
