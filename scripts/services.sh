#!/usr/bin/env bash
# Builds into the user's cache what the pods of a test's cluster need to reach services, and
# what enforces its network policies. See --help.
set -euo pipefail

version=1.14.7
module=github.com/coredns/coredns
# The checksums that sum.golang.org holds for the module and its go.mod; go
# itself checks the dependencies against that log.
module_sum='h1:UPDkn4QN+xyNfjz3U5ldgoLszDYpMZEJoy3+ze9au4Q='
go_mod_sum='h1:ABNpFbWAas3/CDYRyzlVYLqX/gSVq/5yDr7wm5fjafA='
# The program that writes the kernel's rules, for kube-proxy and the tests, and its libraries.
packages=(nftables libnftables1 libnftnl11 libmnl0 libxtables12 libjansson4 libedit2 libbsd0 libmd0 libgmp10 libtinfo6)

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/services"
dir="$root/$version"

usage() {
	cat <<-EOT
		Usage: scripts/services.sh [--help]

		Builds what a test's cluster needs for its services in
		  $dir
		and prints that path. The directory holds
		  coredns   CoreDNS $version with the plugins for a cluster, built from the Go
		            module proxy
		  usr/      nftables, unpacked from Debian's packages
		Does nothing if it is there already. To build it again, remove the directory.
		It installs nothing. If apt-get is missing or fails, it says so and builds nothing,
		because a test's cluster then has no real node.

		Only tests need it: make test-kubernetes.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/services.sh)/coredns" -plugins
	EOT
}

# build fills $1/out with CoreDNS, from a throw-away module.
build() {
	local work=$1
	export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
	mkdir "$work/module"
	cd "$work/module"
	printf 'module coredns-build\n\ngo 1.24.0\n\nrequire %s v%s\n' "$module" "$version" >go.mod
	printf '%s v%s %s\n%s v%s/go.mod %s\n' "$module" "$version" "$module_sum" "$module" "$version" "$go_mod_sum" >go.sum
	cat >main.go <<-SOURCE
		package main

		import (
			"$module/core/dnsserver"
			"$module/coremain"
			_ "$module/plugin/bind"
			_ "$module/plugin/errors"
			_ "$module/plugin/kubernetes"
		)

		func main() {
			dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
			coremain.Run()
		}
	SOURCE
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/coredns" .
}

# unpack fills $1/out with the files of the packages. It uses private package lists,
# because the machine's belong to root and may be absent.
unpack() {
	local work=$1 deb
	mkdir -p "$work/lists/partial" "$work/debs"
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

present() { [[ -x "$dir/coredns" && -x "$dir/usr/sbin/nft" ]]; }

if ! present; then
	command -v go >/dev/null || {
		echo "services.sh: needs Go 1.26 or later on the PATH" >&2
		exit 1
	}
	echo "Building CoreDNS $version and unpacking Debian's nftables (a minute or two the first time)" >&2
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
	mkdir "$work/out"
	# Do not call it in a condition: there, set -e would not stop at its first failure.
	set +e
	(
		set -e
		unpack "$work"
	)
	unpacked=$?
	set -e
	if ((unpacked != 0)); then
		# Without these packages there is no real node either; see kubernetes.sh.
		echo "services.sh: NO SERVICES: could not fetch ${packages[*]} with apt-get" >&2
		echo "$dir"
		exit
	fi
	(build "$work")
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || present || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
fi
echo "$dir"
