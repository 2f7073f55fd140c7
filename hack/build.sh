#!/usr/bin/env bash
# Builds programs of Catena into bin, and a Kubernetes control plane into bin/k8s:
#
#	hack/build.sh [control-plane] [catena] [gateway] [replay] [run]
#	hack/build.sh OS/ARCHITECTURE...
#
# For a platform, it builds the programs that have images into bin/OS/ARCHITECTURE.
#
# Use this script wherever a program of this repository is needed. Everything is built with the flags in hack/flags.sh, and
# hack/controlplane/go.mod selects the same versions as go.mod, so a package that several programs share is compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/flags.sh
source hack/version.sh

# A step is a name, the seconds that it takes on two idle cores if nothing is cached, and a command.
names=() seconds=() commands=()
step() {
	names+=("$1") seconds+=("$2") commands+=("${*:3}")
}

# The go command's own stamp depends on the kind of checkout, and is missing in a worktree.
build() { # DIRECTORY LDFLAGS ARGUMENTS...
	(cd "$1" && go build -buildvcs=false -ldflags="-s -w $2" "${@:3}")
}

# A program of the control plane is built again when the go.sum of its module or the flags change.
inputs() { { cat hack/controlplane/go.sum && echo "$GOFLAGS"; } | cksum; }

kubernetes_step() { # NAME SECONDS PACKAGE
	if [[ ! -x bin/k8s/$1 || $(cat "bin/k8s/.$1.cksum" 2>/dev/null) != "$(inputs)" ]]; then
		step "$1" "$2" kubernetes "$1" "$3"
	fi
}

kubernetes() { # NAME PACKAGE
	build hack/controlplane "$(kubernetes_version)" -o "$PWD/bin/k8s/$1" "$2"
	inputs >"bin/k8s/.$1.cksum"
}

# kubernetes_version prints linker flags that set the version of Kubernetes: kubectl rejects a server without one.
kubernetes_version() {
	local version major minor package
	version=$(cd hack/controlplane && go list -m -f '{{.Version}}' k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${version#v}"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- '-X %s=%s ' "$package.gitVersion" "$version" "$package.gitMajor" "$major" "$package.gitMinor" "$minor" \
			"$package.gitTreeState" clean
	done
}

# Catena's programs are built together, so that one is compiled while another is linked.
catena() { # DIRECTORY PACKAGES...
	local package=github.com/catena-dev/catena/internal/version
	build . "-X $package.version=$VERSION -X $package.commit=$COMMIT" -o "$1/" "${@:2}"
}

programs_of_images() { # PLATFORM
	GOOS=${1%/*} GOARCH=${1#*/} catena "bin/$1" ./cmd/catena ./cmd/gateway
}

# run_steps runs the steps. Before each step, it prints the expected time for this step and the remaining ones, at the
# pace of the previous ones.
run_steps() {
	local i all=0 done=0 start left
	for i in "${seconds[@]}"; do all=$((all + i)); done
	SECONDS=0
	for i in "${!names[@]}"; do
		left=$((all - done))
		((done == 0)) || left=$((left * SECONDS / done))
		if ((left < 90)); then left="about a minute"; else left="about $(((left + 30) / 60)) minutes"; fi
		printf '  [%d/%d] %-24s %s left … ' $((i + 1)) ${#names[@]} "${names[i]}" "$left"
		start=$SECONDS
		${commands[i]}
		echo "$((SECONDS - start)) s"
		done=$((done + seconds[i]))
	done
}

programs=() packages=()
for name in "$@"; do
	case $name in
	control-plane)
		kubernetes_step etcd 60 go.etcd.io/etcd/server/v3
		kubernetes_step kube-apiserver 250 k8s.io/kubernetes/cmd/kube-apiserver
		kubernetes_step kube-controller-manager 80 k8s.io/kubernetes/cmd/kube-controller-manager
		command -v kubectl >/dev/null || kubernetes_step kubectl 20 k8s.io/kubernetes/cmd/kubectl
		;;
	*/*) step "$name" 150 programs_of_images "$name" ;;
	run) programs+=(run) packages+=(./hack/run) ;;
	*) programs+=("$name") packages+=("./cmd/$name") ;;
	esac
done
if [[ ${#programs[@]} -gt 0 ]]; then
	step "$(IFS=+ && echo "${programs[*]}")" 45 catena bin "${packages[@]}"
fi
if [[ ${#names[@]} -gt 0 ]]; then
	echo "Building into bin"
	run_steps
fi
