#!/bin/bash
# Prints figures of the code: packages, functions, lines by top folder, statements.
set -euo pipefail
cd "$(dirname "$0")/.."
go test -vet=off -count=1 -run '^TestFigures$' -v . | grep -Ev '^(===|---|PASS|ok|    figures_test)' | sed 's/^        //'
