#!/usr/bin/env bash
# Builds an OpenTelemetry collector for the tests into the user's cache. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=0.165.0
# The version of the collector's modules that are stable.
stable=1.71.0
module=go.opentelemetry.io/collector/otelcol
# The checksums of the module and its go.mod.
module_sum='h1:h04o7Eb98gf7/9pUU3JBSqaS5qDTEXnRzhj8fHq6Cm4='
go_mod_sum='h1:reiFwCt8xWMXmPhyWKEGTAUWuBL8LPU8E0LZBfbdO1I='

root="$cache/collector"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/collector.sh [--help]

		Builds OpenTelemetry's collector $version from the Go module proxy into
		  $dir
		with the OTLP receiver and the OTLP exporter over HTTP, and prints the path of the
		binary "otelcol". Does nothing if it is there already. To build it again, remove the
		directory.

		Only a test needs it: go test -run TestTraces ./e2e.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/collector.sh)" components
	EOF
}

present() { [[ -x "$dir/otelcol" ]]; }

build() {
	local name
	in_module collector "$module" "v$version" "$module_sum" "$go_mod_sum"
	for name in component confmap confmap/provider/yamlprovider exporter receiver; do
		go mod edit -require "go.opentelemetry.io/collector/$name@v$stable"
	done
	for name in exporter/otlphttpexporter receiver/otlpreceiver service; do
		go mod edit -require "go.opentelemetry.io/collector/$name@v$version"
	done
	cat >main.go <<-SOURCE
		package main

		import (
			"log"

			"go.opentelemetry.io/collector/component"
			"go.opentelemetry.io/collector/confmap"
			"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
			"go.opentelemetry.io/collector/exporter"
			"go.opentelemetry.io/collector/exporter/otlphttpexporter"
			"go.opentelemetry.io/collector/otelcol"
			"go.opentelemetry.io/collector/receiver"
			"go.opentelemetry.io/collector/receiver/otlpreceiver"
			"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
		)

		func main() {
			c := otelcol.NewCommand(otelcol.CollectorSettings{
				BuildInfo: component.BuildInfo{Command: "otelcol", Version: "$version"},
				Factories: func() (f otelcol.Factories, err error) {
					f.Telemetry = otelconftelemetry.NewFactory()
					if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
						return f, err
					}
					f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](otlphttpexporter.NewFactory())
					return f, err
				},
				ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
					DefaultScheme: "yaml", ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
				}},
			})
			if err := c.Execute(); err != nil {
				log.Fatal(err)
			}
		}
	SOURCE
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/otelcol" .
}

options "$@"
fill 1.25 "Building OpenTelemetry's collector $version (a minute the first time)"
echo "$dir/otelcol"
