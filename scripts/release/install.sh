#!/bin/sh
# Installs faas-infer @VERSION@ on Linux: checks the signature and the checksum of the release, puts the
# programs into PREFIX/bin and fetches ONNX Runtime. See --help.
set -eu

version=@VERSION@
# The key with which the release is signed, as minisign writes it. It is empty if nobody signed the release.
key='@PUBLIC_KEY@'
from=@URL@/$version
prefix=/usr/local
setup=1
unsigned=

usage() {
	cat <<EOF
Usage: install.sh [--prefix DIR] [--from URL|DIR] [--no-setup] [--unsigned]

Installs faas-infer $version for this machine.

  --prefix DIR    puts the programs into DIR/bin, default $prefix
  --from URL|DIR  takes the release from there, default $from
  --no-setup      does not fetch ONNX Runtime, which "faas-infer setup" fetches later. Nor does root,
                  as the library is in the cache of the user who runs faas-infer
  --unsigned      installs a release that nobody signed, from https or a folder

The signature is checked with minisign, or with openssl 3 if there is no minisign.
EOF
}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

while [ $# -gt 0 ]; do
	case "$1" in
	-h | --help)
		usage
		exit
		;;
	--prefix | --from)
		[ -n "${2-}" ] || fail "$1 needs a value"
		case "$1" in
		--prefix) prefix=$2 ;;
		--from) from=${2%/} ;;
		esac
		shift 2
		;;
	--no-setup)
		setup=
		shift
		;;
	--unsigned)
		unsigned=1
		shift
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
done

if [ -z "$key" ]; then
	[ -n "$unsigned" ] ||
		fail "nobody signed this release, so changed files cannot be told: give --unsigned to install it all the same"
	case "$from" in
	http://*) fail "$from: a release that nobody signed is not taken from http, as others can change it on the way: use https" ;;
	esac
fi
[ "$(uname -s)" = Linux ] || fail "this machine runs $(uname -s): faas-infer needs Linux"
case "$(uname -m)" in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "this machine is $(uname -m): there are programs for x86_64 and aarch64" ;;
esac
# The programs need a glibc of this version. A machine without getconf is not asked.
glibc=@GLIBC@
if command -v getconf >/dev/null; then
	has=$(getconf GNU_LIBC_VERSION 2>/dev/null) ||
		fail "this machine has no glibc, as Alpine Linux: faas-infer needs glibc $glibc or later. Use the images, or another distribution"
	[ "$(printf '%s\n' "$glibc" "${has#glibc }" | sort -V | head -n 1)" = "$glibc" ] ||
		fail "this machine has $has: faas-infer needs glibc $glibc or later, such as in Debian 12, Ubuntu 22.04 or RHEL 9"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# get takes a file of the release.
get() {
	case "$from" in
	http://* | https://*)
		if command -v curl >/dev/null; then
			curl -fsSL --retry 3 -o "$work/$1" "$from/$1" || fail "cannot fetch $from/$1"
		elif command -v wget >/dev/null; then
			wget -q -O "$work/$1" "$from/$1" || fail "cannot fetch $from/$1"
		else
			fail "neither curl nor wget is there: install one, or give a folder with the release with --from"
		fi
		;;
	*) cp "$from/$1" "$work/$1" || fail "$from has no $1" ;;
	esac
}

# check_signature checks the signature of the file $1, which is in $1.minisig, with the key. A signature is in its
# second line, after two bytes with the algorithm and eight with the number of the key, and is that of the
# BLAKE2b sum of the file.
check_signature() {
	if command -v minisign >/dev/null; then
		minisign -Vqm "$1" -P "$key" || fail "the signature of ${1##*/} is wrong: do not use these files"
		return
	fi
	openssl version 2>/dev/null | grep -q '^OpenSSL [3-9]' ||
		fail "the signature cannot be checked: install minisign, or openssl 3"
	sed -n 2p "$1.minisig" | base64 -d >"$1.line"
	echo "$key" | base64 -d >"$1.key"
	[ "$(head -c 10 "$1.line" | tail -c 8 | od -An -tx1)" = "$(head -c 10 "$1.key" | tail -c 8 | od -An -tx1)" ] ||
		fail "${1##*/} is signed with another key: do not use these files"
	tail -c +11 "$1.line" >"$1.signature"
	# What precedes a key of Ed25519 in DER, then the key.
	{ printf '\060\052\060\005\006\003\053\145\160\003\041\000' && tail -c +11 "$1.key"; } >"$1.der"
	openssl dgst -blake2b512 -binary "$1" >"$1.sum"
	openssl pkeyutl -verify -pubin -keyform DER -inkey "$1.der" -rawin -in "$1.sum" -sigfile "$1.signature" \
		>/dev/null 2>&1 || fail "the signature of ${1##*/} is wrong: do not use these files"
}

name=faas-infer-$version-linux-$arch
get SHA256SUMS
if [ -n "$key" ]; then
	get SHA256SUMS.minisig
	check_signature "$work/SHA256SUMS"
else
	echo "install.sh: nobody signed this release; only its checksums are checked" >&2
fi
get "$name.tar.gz"
grep " $name.tar.gz\$" "$work/SHA256SUMS" >"$work/sum" || fail "SHA256SUMS has no $name.tar.gz"
(cd "$work" && sha256sum -c sum >/dev/null) || fail "$name.tar.gz has another checksum than the release"
tar -xzf "$work/$name.tar.gz" -C "$work"

mkdir -p "$prefix/bin" 2>/dev/null || fail "$prefix/bin cannot be made: run it as root, or give --prefix \"\$HOME/.local\""
for program in faas-infer faas-infer-kubernetes; do
	# A rename replaces a program that runs.
	install -m 0755 "$work/$name/$program" "$prefix/bin/.$program.new" 2>/dev/null ||
		fail "$prefix/bin cannot be written: run it as root, or give --prefix \"\$HOME/.local\""
	mv "$prefix/bin/.$program.new" "$prefix/bin/$program"
done
echo "Installed faas-infer $version in $prefix/bin."
[ -n "$setup" ] || exit 0
if [ "$(id -u)" = 0 ]; then
	echo "Then fetch ONNX Runtime as the user who runs faas-infer: $prefix/bin/faas-infer setup"
else
	"$prefix/bin/faas-infer" setup
fi
