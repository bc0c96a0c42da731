#!/usr/bin/env bash
# Builds a real Kubernetes from source on the machine where its tests will run.
# See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=1.36.3
etcd_version=3.6.16
kwok_version=0.8.0
# The checksums of the modules and their go.mod.
kubernetes_sum='h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o='
kubernetes_mod_sum='h1:6oChkQeI7Yf6lV9lFpSdRzODdbY/ECp/4zUeBk8ONaw='
etcd_sum='h1:sLkpvz3RFtiNd/yPrZBKz5kT+XO1ZJkhmuUJeqc7OmA='
etcd_mod_sum='h1:4SjXH6zYclHqLjZRkTVAS6cEsJjuso0IZVzCKNXLrak='
kwok_sum='h1:OTIOTwgROqPMovcTwxICx2eYQ4AwLpSx5EpjbDKF4SQ='

programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl kube-proxy)
# What a node needs besides these programs: the container runtime, a library of runc, and
# the shell and tools of the images that tests run.
packages=(containerd runc containernetworking-plugins libseccomp2 busybox-static)

root="$cache/kubernetes"
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
	local flags="-s -w" minor package paths=() name
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
	in_module etcd go.etcd.io/etcd/server/v3 "v$etcd_version" "$etcd_sum" "$etcd_mod_sum"
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/bin/etcd" go.etcd.io/etcd/server/v3
}

build_kwok() {
	local file stages
	in_module kwok sigs.k8s.io/kwok "v$kwok_version" "$kwok_sum"
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/bin/kwok" sigs.k8s.io/kwok/cmd/kwok
	stages="$(go list -f '{{.Module.Dir}}' sigs.k8s.io/kwok/cmd/kwok)/kustomize/stage"
	for file in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease \
		pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
		echo ---
		cat "$stages/$file.yaml"
	done >"$work/out/stages.yaml"
}

# build_pause builds the program of a pod's first container, which waits for a signal to
# end.
build_pause() {
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

build() {
	mkdir "$work/out/bin"
	(build_kubernetes)
	(build_etcd)
	(build_kwok)
	(build_pause)
}

options "$@"
fill 1.24 "Building Kubernetes $version, etcd $etcd_version and kwok $kwok_version (about 8 minutes the first time)"
if ! node_present; then
	begin
	unpack "${packages[@]}"
	if ((failed)); then
		echo "kubernetes.sh: NO REAL NODE: could not fetch ${packages[*]} with apt-get; tests run on the API server alone" >&2
	else
		keep "$work/out" "$dir/node" node_present
	fi
fi
echo "$dir"
