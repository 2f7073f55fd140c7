#!/usr/bin/env bash
# Writes the source of the version that users upgrade from to a directory, and prints its name: the last tag before HEAD or, without
# tags, the parent of HEAD. Without a parent, as in a shallow clone, it prints nothing.
#
#	hack/previous.sh DIRECTORY
set -euo pipefail
mkdir -p "$1"
directory=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
git rev-parse --quiet --verify HEAD^ >/dev/null || exit 0
version=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-parse --short=12 HEAD^)
git archive "$version" | tar -x -C "$directory"
echo "$version"
