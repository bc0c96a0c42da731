#!/usr/bin/env bash
# Builds into the user's cache what the pods of a test's cluster need to reach services, and
# what enforces its network policies. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=1.14.7
module=github.com/coredns/coredns
# The checksums of the module and its go.mod.
module_sum='h1:UPDkn4QN+xyNfjz3U5ldgoLszDYpMZEJoy3+ze9au4Q='
go_mod_sum='h1:ABNpFbWAas3/CDYRyzlVYLqX/gSVq/5yDr7wm5fjafA='
# The program that writes the kernel's rules, for kube-proxy and the tests, and its libraries.
packages=(nftables libnftables1 libnftnl11 libmnl0 libxtables12 libjansson4 libedit2 libbsd0 libmd0 libgmp10 libtinfo6)

root="$cache/services"
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

present() { [[ -x "$dir/coredns" && -x "$dir/usr/sbin/nft" ]]; }

build() {
	in_module coredns "$module" "v$version" "$module_sum" "$go_mod_sum"
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

options "$@"
if ! present; then
	begin
	unpack "${packages[@]}"
	if ((failed)); then
		# Without these packages there is no real node either; see kubernetes.sh.
		echo "services.sh: NO SERVICES: could not fetch ${packages[*]} with apt-get" >&2
		echo "$dir"
		exit
	fi
fi
fill 1.26 "Building CoreDNS $version (a minute or two the first time)"
echo "$dir"
