#!/bin/bash
# Prints the house's figures: packages, functions, lines by room.
set -euo pipefail
cd "$(dirname "$0")/.."
go test -vet=off -count=1 -run '^TestFigures$' -v . | grep -Ev '^(===|---|PASS|ok|    figures_test)' | sed 's/^        //'
