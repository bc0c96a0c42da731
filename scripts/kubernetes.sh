#!/usr/bin/env bash
# Builds a real Kubernetes from source on the machine where its tests will run.
# See --help.
set -euo pipefail

version=1.36.3
etcd_version=3.6.16
kwok_version=0.8.0
# The checksums that sum.golang.org holds for the modules and their go.mod; go
# itself checks the dependencies against that log.
kubernetes_sum='h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o='
kubernetes_mod_sum='h1:6oChkQeI7Yf6lV9lFpSdRzODdbY/ECp/4zUeBk8ONaw='
etcd_sum='h1:sLkpvz3RFtiNd/yPrZBKz5kT+XO1ZJkhmuUJeqc7OmA='
etcd_mod_sum='h1:4SjXH6zYclHqLjZRkTVAS6cEsJjuso0IZVzCKNXLrak='
kwok_sum='h1:OTIOTwgROqPMovcTwxICx2eYQ4AwLpSx5EpjbDKF4SQ='

programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl kube-proxy)
# What a node needs besides these programs: the container runtime, a library of runc, and
# the shell and tools of the images that tests run.
packages=(containerd runc containernetworking-plugins libseccomp2 busybox-static)

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/kubernetes"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/kubernetes.sh [--help]

		Builds a real Kubernetes for tests in
		  $dir
		and prints that path. The directory holds
		  bin/         etcd $etcd_version, Kubernetes $version (${programs[*]})
		               and kwok $kwok_version, built from the Go module proxy, and pause,
		               which holds a pod's namespaces
		  stages.yaml  what kwok does with its nodes and their pods
		  node/        containerd, runc and CNI plugins, unpacked from Debian's packages
		Skips parts that are there already. To build them again, remove the directory.
		A cold build takes about 8 minutes on two cores, 3 GB of memory and 4 GB of Go's
		caches. It installs nothing. If apt-get is missing or fails, it says so and leaves
		node/ out; the tests then run without a real node.

		Only tests need it: make test-kubernetes.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/kubernetes.sh)/bin/kubectl" version --client
	EOF
}

present() { [[ -x "$dir/bin/kube-apiserver" && -x "$dir/bin/etcd" && -x "$dir/bin/kwok" && -x "$dir/bin/pause" && -f "$dir/stages.yaml" ]]; }
node_present() { [[ -x "$dir/node/usr/bin/containerd" && -x "$dir/node/usr/sbin/runc" && -x "$dir/node/usr/lib/cni/bridge" && -x "$dir/node/bin/busybox" ]]; }

# module_file prints where the module cache has the go.mod of module $1, version $2.
module_file() {
	GOFLAGS='' go mod download -json "$1@$2" | sed -n 's/^\t"GoMod": "\(.*\)",\{0,1\}$/\1/p'
}

# kubernetes_module prints a go.mod with the requirements of Kubernetes' own go.mod. That
# file requires its parts at v0.0.0 and replaces them with folders of its repository.
# Outside the repository they are modules with the same version.
kubernetes_module() {
	awk -v part="v0.${version#1.}" -v whole="v$version" '
		/^module / { print "module kubernetes-build"; next }
		/^replace \(/ { replacing = 1 }
		replacing && / => \.\/staging\// { sub(/=> .*/, "=> " $1 " " part) }
		replacing && /^\)/ { replacing = 0 }
		!replacing && $1 ~ /^k8s\.io\// && $2 == "v0.0.0" { sub(/v0\.0\.0/, part) }
		{ print }
		END { print "require k8s.io/kubernetes " whole }
	' "$1"
}

build_kubernetes() {
	local work=$1 flags="-s -w" minor package paths=() name
	minor="${version#1.}" minor="${minor%.*}"
	mkdir "$work/kubernetes"
	cd "$work/kubernetes"
	kubernetes_module "$(module_file k8s.io/kubernetes "v$version")" >go.mod
	printf 'k8s.io/kubernetes v%s %s\nk8s.io/kubernetes v%s/go.mod %s\n' \
		"$version" "$kubernetes_sum" "$version" "$kubernetes_mod_sum" >go.sum
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
		flags+=" -X $package.gitTreeState=clean -X $package.buildDate=1970-01-01T00:00:00Z"
	done
	for name in "${programs[@]}"; do paths+=("k8s.io/kubernetes/cmd/$name"); done
	go build -trimpath -buildvcs=false -ldflags "$flags" -o "$work/out/bin/" "${paths[@]}"
}

build_etcd() {
	local work=$1
	mkdir "$work/etcd"
	cd "$work/etcd"
	printf 'module etcd-build\n\ngo 1.24.0\n\nrequire go.etcd.io/etcd/server/v3 v%s\n' "$etcd_version" >go.mod
	printf 'go.etcd.io/etcd/server/v3 v%s %s\ngo.etcd.io/etcd/server/v3 v%s/go.mod %s\n' \
		"$etcd_version" "$etcd_sum" "$etcd_version" "$etcd_mod_sum" >go.sum
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/bin/etcd" go.etcd.io/etcd/server/v3
}

build_kwok() {
	local work=$1 stages
	mkdir "$work/kwok"
	cd "$work/kwok"
	printf 'module kwok-build\n\ngo 1.24.0\n\nrequire sigs.k8s.io/kwok v%s\n' "$kwok_version" >go.mod
	printf 'sigs.k8s.io/kwok v%s %s\n' "$kwok_version" "$kwok_sum" >go.sum
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/bin/kwok" sigs.k8s.io/kwok/cmd/kwok
	stages="$(go list -f '{{.Module.Dir}}' sigs.k8s.io/kwok/cmd/kwok)/kustomize/stage"
	local file
	for file in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease \
		pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
		echo ---
		cat "$stages/$file.yaml"
	done >"$work/out/stages.yaml"
}

# build_pause builds the program of a pod's first container, which waits for a signal to
# end.
build_pause() {
	local work=$1
	mkdir "$work/pause"
	cd "$work/pause"
	printf 'module pause\n\ngo 1.24\n' >go.mod
	cat >main.go <<-'SOURCE'
		package main

		import (
			"os"
			"os/signal"
			"syscall"
		)

		func main() {
			ended := make(chan os.Signal, 1)
			signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
			<-ended
		}
	SOURCE
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/bin/pause" .
}

# build fills $1/out.
build() {
	local work=$1
	export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
	mkdir -p "$work/out/bin"
	(build_kubernetes "$work")
	(build_etcd "$work")
	(build_kwok "$work")
	(build_pause "$work")
}

# unpack fills $1/out with the files of the packages. It uses private package lists,
# because the machine's belong to root and may be absent.
unpack() {
	local work=$1 deb
	mkdir -p "$work/lists/partial" "$work/debs" "$work/out"
	echo '#clear APT::Update::Post-Invoke;' >"$work/apt.conf"
	local private=(-c "$work/apt.conf" -o Dir::State::lists="$work/lists" -o Dir::Cache="$work" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
	apt-get "${private[@]}" update -qq >&2
	(cd "$work/debs" && apt-get "${private[@]}" download -qq "${packages[@]}" >&2)
	for deb in "$work"/debs/*.deb; do
		dpkg-deb --extract "$deb" "$work/out"
	done
}

case "${1-}" in
-h | --help)
	usage
	exit
	;;
'') ;;
*)
	usage >&2
	exit 2
	;;
esac

mkdir -p "$root"
work=
trap '[[ -z $work ]] || { chmod -R u+w "$work"; rm -rf "$work"; }' EXIT
if ! present; then
	command -v go >/dev/null || {
		echo "kubernetes.sh: needs Go 1.24 or later on the PATH" >&2
		exit 1
	}
	echo "Building Kubernetes $version, etcd $etcd_version and kwok $kwok_version (about 8 minutes the first time)" >&2
	work=$(mktemp -d "$root/.build-XXXXXX")
	(build "$work")
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || present || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
	rm -rf "$work"
	work=
fi
if ! node_present; then
	echo "Unpacking Debian's ${packages[*]} for a node" >&2
	work=$(mktemp -d "$root/.build-XXXXXX")
	# Do not call it in a condition: there, set -e would not stop at its first failure.
	set +e
	(
		set -e
		unpack "$work"
	)
	unpacked=$?
	set -e
	if ((unpacked == 0)); then
		mv -T "$work/out" "$dir/node" 2>/dev/null || node_present || {
			rm -rf "$dir/node"
			mv -T "$work/out" "$dir/node"
		}
	else
		echo "kubernetes.sh: NO REAL NODE: could not fetch ${packages[*]} with apt-get; tests run on the API server alone" >&2
	fi
fi
echo "$dir"
