#!/usr/bin/env bash
# Writes what installs this version, without and with Helm: the manifests of config/default, install.yaml, those of the gateway,
# gateway.yaml, and the chart, catena-VERSION.tgz:
#
#	hack/dist.sh REGISTRY [DIRECTORY]
#
# The DIRECTORY is dist by default. Two runs on the same commit write the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/flags.sh
source hack/version.sh
registry=$1 dist=${2:-dist}
mkdir -p "$dist" bin
work=$(mktemp -d bin/dist.XXXXXX) # within the repository, because kustomize accepts only relative paths
trap 'rm -rf "$work"' EXIT

manifests() { # FILE resources|components DIRECTORY
	cat >"$work/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
$2: [../../$3]
images:
- name: ghcr.io/catena-dev/catena
  newName: $registry/catena
  newTag: "$VERSION"
- name: ghcr.io/catena-dev/catena-gateway
  newName: $registry/catena-gateway
  newTag: "$VERSION"
YAML
	go run -modfile=hack/tools.mod sigs.k8s.io/kustomize/kustomize/v5 build "$work" -o "$dist/$1"
}
manifests install.yaml resources config/default
manifests gateway.yaml components config/components/gateway

# The version of a chart must be a semantic one: v0.1.0-3-g0123456789ab is, without the v, and 0123456789ab, without a tag, is not.
chart=${VERSION#v}
[[ $chart =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || chart=0.0.0-g$chart
cp -R charts/catena "$work"
sed -i.old -e "s|^version: .*|version: $chart|" -e "s|^appVersion: .*|appVersion: \"$VERSION\"|" "$work/catena/Chart.yaml"
sed -i.old -e "s|ghcr.io/catena-dev/|$registry/|" "$work"/catena/{values.yaml,README.md}
rm "$work"/catena/*.old
tar --create --directory="$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	--format=ustar catena | gzip --no-name >"$dist/catena-$chart.tgz"
