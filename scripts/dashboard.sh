#!/usr/bin/env bash
# Builds a program that compares a dashboard with Grafana's own schema. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=0.0.22
module=github.com/grafana/grafana-foundation-sdk/go
# The checksums of the module and its go.mod.
module_sum='h1:bE+NJ+nE/ouwQaXtPQTz98yIzevuXlyZ4L5pdPLyiC4='
go_mod_sum='h1:48EA8jF85SrReYflLa39Sk34b6NpxwJPBwjF3TJgRpE='

root="$cache/dashboard"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/dashboard.sh [--help]

		Builds "dashboard" with Grafana's Foundation SDK $version from the Go module proxy into
		  $dir
		and prints its path. Does nothing if it is there already. To build it again, remove the
		directory. It refuses a dashboard with fields that Grafana does not know, or without
		those that it needs. The SDK is under the Apache License 2.0 and is not shipped.

		Only a test needs it: go test -run TestDashboardFitsGrafana ./e2e.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/dashboard.sh)" yaml/options/grafana/dashboard.json
	EOF
}

present() { [[ -x "$dir/dashboard" ]]; }

build() {
	in_module dashboard "$module" "v$version" "$module_sum" "$go_mod_sum"
	cat >main.go <<-SOURCE
		package main

		import (
			"fmt"
			"os"

			"$module/cog"
			"$module/dashboard"
			"$module/prometheus"
			"$module/stat"
			"$module/timeseries"
		)

		func main() {
			runtime := cog.NewRuntime()
			runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
			runtime.RegisterPanelcfgVariant(stat.VariantConfig())
			runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
			text, err := os.ReadFile(os.Args[1])
			if err == nil {
				var d dashboard.Dashboard
				// It returns a list of errors, which may be empty.
				if err = d.UnmarshalJSONStrict(text); err == nil || err.Error() == "" {
					err = d.Validate()
				}
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	SOURCE
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/dashboard" .
}

options "$@"
fill 1.24 "Building the check of dashboards $version (half a minute the first time)"
echo "$dir/dashboard"
