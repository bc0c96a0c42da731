#!/usr/bin/env bash
# Finds or fetches a headless Chromium for the tests of web pages.
# See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

package=chromium-headless-shell
root="$cache"
dir="$root/chromium"

usage() {
	cat <<-EOF
		Usage: scripts/chromium.sh [--help]

		Prints the path of a Chromium (or Chrome) that can run headless. It takes one from
		the PATH. Otherwise it fetches Debian's package $package with apt. Root
		installs the package; other users get it, with the packages that it needs and this
		machine lacks, unpacked into
		  $dir
		Does nothing if it is there already. To fetch it again, remove the directory.

		Only the end-to-end tests of the console and of the gateway's web interface need it.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache

		Example:
		  \$(scripts/chromium.sh) --headless --no-sandbox --dump-dom about:blank
	EOF
}

present() { [[ -x "$dir/chromium" ]]; }

# find_browser prints the path of the first browser that is on the PATH and runs.
find_browser() {
	local name path
	for name in chromium-headless-shell chromium google-chrome google-chrome-stable chromium-browser; do
		path=$(command -v "$name") || continue
		# Ubuntu's chromium-browser may be a script that asks for a snap.
		"$path" --version >/dev/null 2>&1 || continue
		echo "$path"
		return
	done
	return 1
}

# with_lists runs an apt command that fetches packages. If that fails, it updates the
# package lists and runs the command once more.
with_lists() {
	"$@" >&2 || { apt-get update -qq >&2 && "$@" >&2; }
}

install() {
	echo "Installing Debian's $package (about 100 MB)" >&2
	export DEBIAN_FRONTEND=noninteractive
	with_lists apt-get install -qq -y --no-install-recommends "$package"
}

# build fills $work/out with the package, its dependencies and a script that runs it.
build() {
	local needed
	private_lists
	needed=$(apt-get "${private[@]}" install --simulate --no-install-recommends "$package" | awk '$1 == "Inst" { print $2 }')
	# shellcheck disable=SC2086 # One word for each package.
	extract $needed
	cat >"$work/out/chromium" <<-'SCRIPT'
		#!/bin/sh
		here=$(dirname "$(readlink -f "$0")")
		for libraries in "$here"/usr/lib/*-linux-gnu* "$here"/lib/*-linux-gnu*; do
			LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio:$LD_LIBRARY_PATH"
		done
		export LD_LIBRARY_PATH
		# The machine's own fonts are used where it has any.
		[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_PATH="$here/etc/fonts"
		exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
	SCRIPT
	chmod +x "$work/out/chromium"
	"$work/out/chromium" --version >&2
}

options "$@"

if find_browser; then
	exit
fi
if present; then
	echo "$dir/chromium"
	exit
fi
command -v apt-get >/dev/null || {
	echo "chromium.sh: needs a Chromium on the PATH, or apt-get to fetch Debian's" >&2
	exit 1
}
if [[ $(id -u) == 0 ]]; then
	install
	find_browser
	exit
fi
echo "Unpacking Debian's $package into $dir (about 100 MB)" >&2
begin
build
keep "$work/out" "$dir" present
echo "$dir/chromium"
