#!/usr/bin/env bash
# Builds Prometheus and promtool for the tests into the user's cache. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=3.13.0
module=github.com/prometheus/prometheus
# The checksums of the module, whose version is v0.MAJOR+two digits of MINOR.PATCH, and its go.mod.
module_version=v0.313.0
module_sum='h1:DH5Rcybaem9nuKaFYtY+Kmogmp/NiNPpS9WBIRlSy6E='
go_mod_sum='h1:Kq9A+EPun2WyVusbQxO7Tx1RxKqLKFclfiBGJA1mFkk='

root="$cache/prometheus"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/prometheus.sh [--help]

		Builds Prometheus $version and its promtool from the Go module proxy into
		  $dir
		and prints this directory. Does nothing if they are there already. To build them
		again, remove the directory. They lack the web interface, and of the ways to discover
		what to scrape they have DNS, files and static lists.

		Only tests need them: go test -run 'TestAlerts|TestDashboard' ./e2e. They are under the
		Apache License 2.0 and are not shipped.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/prometheus.sh)/promtool" check rules yaml/chart/faas-infer/files/rules.yaml
	EOF
}

present() { [[ -x "$dir/prometheus" && -x "$dir/promtool" ]]; }

build() {
	in_module prometheus "$module" "$module_version" "$module_sum" "$go_mod_sum"
	# Clients of clouds and of Kubernetes would be most of the build.
	go build -trimpath -buildvcs=false -tags remove_all_sd,enable_dns_sd -ldflags '-s -w' -o "$work/out/" "$module/cmd/prometheus" "$module/cmd/promtool"
	cp "$(go list -m -f '{{.Dir}}' "$module")/LICENSE" "$work/out/LICENSE"
	chmod -R u+w "$work/out"
}

options "$@"
fill 1.25 "Building Prometheus $version (two minutes the first time)"
echo "$dir"
