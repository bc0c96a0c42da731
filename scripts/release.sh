#!/usr/bin/env bash
# Makes a release. See --help.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

usage() {
	cat <<-EOF
		Usage: scripts/release.sh VERSION [--only PART,PART…] [--architectures ARCH,ARCH…]

		Makes the release VERSION, such as v1.2.3, in dist/VERSION: programs for linux/amd64 and
		linux/arm64 as tars and Debian packages, images for both as OCI layouts, the chart and the
		kustomizations with the digests of these images, a bill of materials (SPDX), install.sh,
		SHA256SUMS and its signature. It is meant to be reproducible: a test compares two releases
		for amd64 without images. Images take the packages of the day.

		VERSION must have a section in CHANGELOG.md, and the checkout must have no changes.
		--only makes some of: programs, packages, images, charts. What is there of the same commit is
		used again; what is of another one is refused.
		--architectures makes it for some of amd64 and arm64 only.

		Environment:
		  RELEASE_KEY       file with minisign's secret key, without a password. Without it nothing
		                    is signed, and install.sh says so
		  RELEASE_REGISTRY  where the images will be pushed, default $registry
		  RELEASE_URL       where the files will be, default $url
		  RELEASE_DIRTY=1   allow changes in the checkout

		To publish it: copy dist/VERSION to RELEASE_URL/VERSION, and push the images:
		  scripts/release.sh VERSION --push
	EOF
}

registry=${RELEASE_REGISTRY:-ghcr.io/faas-infer}
url=${RELEASE_URL:-https://github.com/faas-infer/faas-infer/releases/download}
module=github.com/faas-infer/faas-infer
architectures=(amd64 arm64)
version='' push='' parts=programs,packages,images,charts

fail() {
	echo "release.sh: $*" >&2
	exit 1
}

while (($#)); do
	case "$1" in
	-h | --help)
		usage
		exit
		;;
	--only)
		[[ -n ${2-} ]] || fail "--only needs a value"
		parts=$2
		[[ $parts =~ ^(programs|packages|images|charts)(,(programs|packages|images|charts))*$ ]] ||
			fail "--only is \"$parts\": give some of programs, packages, images, charts"
		shift
		;;
	--architectures)
		[[ ${2-} =~ ^(amd64|arm64)(,(amd64|arm64))?$ ]] || fail "--architectures is \"${2-}\": give amd64, arm64 or amd64,arm64"
		IFS=, read -ra architectures <<<"$2"
		shift
		;;
	--push) push=1 ;;
	-*)
		usage >&2
		exit 2
		;;
	*) version=$1 ;;
	esac
	shift
done
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] ||
	fail "the version is \"$version\": give one such as v1.2.3 or v1.2.3-rc.1, for example make release VERSION=v1.2.3"
number=${version#v}
out=$PWD/dist/$version
# The programs are what the other files are made of. They are not published as they are.
programs=$PWD/dist/programs-$version
# The oldest glibc that the programs run with. Debian 12, in which releases are made, has a later one.
glibc=2.34

wants() { [[ ,$parts, == *,"$1",* ]]; }

# Everything that is missing is named at once.
missing=()
for arch in "${architectures[@]}"; do
	triple=$([[ $arch == amd64 ]] && echo x86_64 || echo aarch64)
	command -v "$triple-linux-gnu-gcc" >/dev/null || missing+=("gcc-${triple/_/-}-linux-gnu")
	[[ $arch == $(go env GOHOSTARCH) || -e /usr/$triple-linux-gnu/include/stdlib.h ]] || missing+=("libc6-dev-$arch-cross")
done
command -v dpkg-deb >/dev/null || missing+=(dpkg)
command -v readelf >/dev/null || missing+=(binutils)
[[ -z ${RELEASE_KEY-} ]] || command -v minisign >/dev/null || missing+=(minisign)
((${#missing[@]} == 0)) || fail "these packages are missing: apt-get install ${missing[*]}"
[[ -z ${RELEASE_KEY-} || -r $RELEASE_KEY ]] || fail "RELEASE_KEY is $RELEASE_KEY, which cannot be read"
[[ -n ${RELEASE_DIRTY-} || -z $(git status --porcelain) ]] || fail "the checkout has changes: commit them, or set RELEASE_DIRTY=1"
grep -q "^## \[$number\]" CHANGELOG.md || fail "CHANGELOG.md has no section \"## [$number]\""
tagged=$(git rev-parse -q --verify "refs/tags/$version^{commit}" || true)
[[ -z $tagged || $tagged == $(git rev-parse HEAD) ]] ||
	fail "the tag $version is of the commit ${tagged:0:12}, not of this one: check that out, or give another version"

# What is there from another commit, or from other changes, would be signed with the rest.
state=$(git rev-parse HEAD)
[[ -z $(git status --porcelain) ]] ||
	state+=-$({ git diff HEAD && git ls-files -z --others --exclude-standard | xargs -0r cat; } | sha256sum | head -c 12)
if [[ -n $(ls -A "$out" "$programs" 2>/dev/null) && $(cat "$programs/commit" 2>/dev/null) != "$state" ]]; then
	fail "dist/$version is of another commit: remove it, and dist/programs-$version"
fi

if [[ -n $push ]]; then
	[[ -e $out/SHA256SUMS ]] || fail "dist/$version has no whole release: make it first, without --push"
	(cd "$out" && sha256sum --quiet --check SHA256SUMS) || fail "dist/$version differs from its SHA256SUMS: make the release again"
	for image in base base-shell base-python provider; do
		name=$registry/${image%%-*}:$version${image#"${image%%-*}"}
		digest=$(sed -n "s|^$name@||p" "$out/images.txt")
		[[ -n $digest ]] || fail "images.txt has no $name: make the images first, with the same RELEASE_REGISTRY"
		pushed=$("$programs/$(go env GOHOSTARCH)/faas-infer-kubernetes" image push "$out/faas-infer-$version-image-$image.tar" "$name")
		echo "$pushed"
		[[ ${pushed##*@} == "$digest" ]] || fail "$name was pushed with another digest than images.txt has, $digest"
	done
	exit
fi

commit=$(git rev-parse --short=12 HEAD)
# Settings of "go env -w" would be in the programs. Those that say from where modules come stay.
for name in GOPROXY GOSUMDB GOPRIVATE GONOPROXY GONOSUMDB GOINSECURE GOTOOLCHAIN GOCACHE GOMODCACHE; do
	export "$name=$(go env "$name")"
done
export GOENV=off
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC CGO_ENABLED=1 GOFLAGS=-buildvcs=false
# Debian's build flags, or a user's, would be in the programs.
unset CFLAGS CPPFLAGS LDFLAGS CGO_CFLAGS CGO_CPPFLAGS CGO_LDFLAGS GOAMD64 GOARM64 GOEXPERIMENT GOFIPS140
# The builder's own library would be in the images.
unset FAAS_INFER_ONNXRUNTIME
umask 022
mkdir -p "$out" "$programs"
echo "$state" >"$programs/commit"
# Until all is made, nothing vouches for what is there.
rm -f "$out/SHA256SUMS" "$out/SHA256SUMS.minisig"

work=$(mktemp -d)
finish() {
	local status=$?
	rm -rf "$work" "$out"/*.part
	((status == 0)) || echo "release.sh: dist/$version is not a whole release: mend the cause, and make it again" >&2
}
trap finish EXIT
[[ -z ${RELEASE_KEY-} ]] || minisign -R -f -s "$RELEASE_KEY" -p "$work/key.pub" >/dev/null </dev/null ||
	fail "RELEASE_KEY is $RELEASE_KEY: minisign cannot use it without a password; make a key with minisign -G -W"

# pack makes the compressed tar $1 of the folder $3 in $2, with the same bytes each time.
pack() {
	tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -C "$2" -cf - "$3" |
		gzip -n >"$1.part"
	mv "$1.part" "$1"
}

build_programs() {
	local arch=$1 cc flags needs
	cc=$([[ $arch == amd64 ]] && echo x86_64 || echo aarch64)-linux-gnu-gcc
	flags="-s -w -buildid= -X $module/command/report.Commit=$commit -X $module/command/report.Release=$version"
	echo "Building the programs for linux/$arch" >&2
	CC=$cc GOARCH=$arch go build -trimpath -ldflags "$flags" -o "$programs/$arch/faas-infer" .
	CC=$cc GOARCH=$arch go build -trimpath -ldflags "$flags" -o "$programs/$arch/faas-infer-kubernetes" ./command/kubernetes/program
	needs=$(readelf --wide --version-info "$programs/$arch/"* | grep -o 'GLIBC_[0-9.]*' | sed '$ a GLIBC_'$glibc | sort -uV | tail -n 1)
	[[ $needs == "GLIBC_$glibc" ]] ||
		fail "the programs for $arch need glibc ${needs#*_}, but a release runs with $glibc: make it on Debian 12, or change glibc in scripts/release.sh and docs/releases.md"
}

# texts puts what belongs to the programs into the folder $1.
texts() {
	cp LICENSE README.md CHANGELOG.md scripts/release/faas-infer.service scripts/release/config.yaml "$work/THIRD-PARTY-LICENCES" "$1"
	chmod 0644 "$1"/*
}

tarball() {
	local arch=$1 name=faas-infer-$version-linux-$1
	mkdir -p "$work/$name"
	texts "$work/$name"
	cp "$programs/$arch/"* "$work/$name"
	chmod 0755 "$work/$name/faas-infer" "$work/$name/faas-infer-kubernetes"
	pack "$out/$name.tar.gz" "$work" "$name"
}

# debian makes the Debian package of the program for one machine.
debian() {
	local arch=$1 root=$work/deb-$1 doc=usr/share/doc/faas-infer size page package
	install -d "$root/DEBIAN" "$root/$doc" "$root/usr/share/man/man1" "$root/etc/faas-infer"
	install -Dm 0755 "$programs/$arch/faas-infer" "$root/usr/bin/faas-infer"
	install -Dm 0644 scripts/release/faas-infer.service "$root/usr/lib/systemd/system/faas-infer.service"
	install -Dm 0644 scripts/release/config.yaml "$root/etc/faas-infer/config.yaml"
	cat LICENSE "$work/THIRD-PARTY-LICENCES" >"$root/$doc/copyright"
	gzip -9n <CHANGELOG.md >"$root/$doc/changelog.gz"
	for page in "$work"/man/*.1; do gzip -9n <"$page" >"$root/usr/share/man/man1/${page##*/}.gz"; done
	install -m 0755 scripts/release/debian/* "$root/DEBIAN/"
	echo /etc/faas-infer/config.yaml >"$root/DEBIAN/conffiles"
	size=$(find "$root" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s / 1024 }')
	cat >"$root/DEBIAN/control" <<-EOF
		Package: faas-infer
		Version: ${number/-/\~}
		Architecture: $arch
		Maintainer: faas-infer <https://github.com/faas-infer/faas-infer>
		Homepage: https://github.com/faas-infer/faas-infer
		Section: net
		Priority: optional
		Installed-Size: $size
		Depends: libc6 (>= $glibc), ca-certificates, passwd
		Recommends: python3-venv
		Description: OpenFaaS provider for machine-learning models
		 faas-infer serves machine-learning models as OpenFaaS functions that keep a
		 latency objective, and any other program as an ordinary function.
	EOF
	find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	# With several threads xz divides the content differently.
	package=$out/faas-infer_${number/-/\~}_$arch.deb
	dpkg-deb --root-owner-group -Zxz -z1 --threads-max=1 --build "$root" "$package.part" >&2
	mv "$package.part" "$package"
}

build_images() {
	local host image arch name tag files digest
	host=$programs/$(go env GOHOSTARCH)
	declare -A flags=([base]='' [base-shell]=--shell [base-python]=--python)
	for arch in "${architectures[@]}"; do
		"$host/faas-infer" setup --architecture "$arch" >&2
		for image in base base-shell base-python; do
			echo "Building the image $image for linux/$arch" >&2
			# shellcheck disable=SC2086
			"$host/faas-infer-kubernetes" image base ${flags[$image]} --architecture "$arch" --program "$programs/$arch/faas-infer" \
				--name "$registry/base:$version" --tar "$work/$image-$arch.tar" >&2
		done
		"$host/faas-infer-kubernetes" image provider --base "$work/base-python-$arch.tar" --architecture "$arch" \
			--provider-program "$programs/$arch/faas-infer-kubernetes" --name "$registry/provider:$version" --tar "$work/provider-$arch.tar" >&2
	done
	: >"$work/images"
	for image in base base-shell base-python provider; do
		name=${image%%-*} tag=$version${image#"${image%%-*}"}
		files=("${architectures[@]/#/$work/$image-}")
		digest=$("$host/faas-infer-kubernetes" image index "${files[@]/%/.tar}" --name "$registry/$name:$tag" \
			--tar "$out/faas-infer-$version-image-$image.tar" | grep -o 'sha256:[0-9a-f]*')
		echo "$registry/$name:$tag@$digest" >>"$work/images"
	done
	cp "$work/images" "$out/images.txt"
}

# charts makes the chart and the kustomizations with the digests of the images.
build_charts() {
	local provider digest dir
	provider=$(grep "/provider:$version@" "$out/images.txt") || fail "dist/$version/images.txt has no image of the provider: make the images first"
	digest=${provider#*@}
	mkdir -p "$work/chart" "$work/faas-infer-$version-kustomize"
	cp -rL yaml/chart/faas-infer "$work/chart" # Its files are links to those of kubectl.
	dir=$work/chart/faas-infer
	sed -i "s|^version: .*|version: $number|; s|^appVersion: .*|appVersion: $version|" "$dir/Chart.yaml"
	sed -i "/^image:/,/^[a-zA-Z]/ { s|repository: .*|repository: $registry/provider|; s|digest: \"\"|digest: \"$digest\"| }" \
		"$dir/values.yaml"
	sed -i "s|registry.example.com/faas-infer/|$registry/|" "$dir/values.yaml"
	grep -q "$digest" "$dir/values.yaml" || fail "values.yaml did not take the image's digest"
	chmod -R u=rwX,go=rX "$work/chart"
	pack "$out/faas-infer-chart-$number.tgz" "$work/chart" faas-infer

	dir=$work/faas-infer-$version-kustomize
	cp -r yaml/. "$dir"
	rm -r "$dir/chart"
	sed -i "s|newName: registry.example.com/faas-infer/|newName: $registry/|; s|newTag: latest|digest: $digest|
		s|app.kubernetes.io/version: latest|app.kubernetes.io/version: $version|
		s|Set these to the registry to which you pushed the images of .make images.\.|The images of $version.|" "$dir/kustomization.yaml"
	sed -i "s|registry.example.com/faas-infer/base:latest|$registry/base:$version|" "$dir/options/builder/kustomization.yaml"
	grep -q "$digest" "$dir/kustomization.yaml" || fail "kustomization.yaml did not take the image's digest"
	chmod -R u=rwX,go=rX "$dir"
	pack "$out/faas-infer-$version-kustomize.tar.gz" "$work" "faas-infer-$version-kustomize"
}

sign() {
	local key=''
	if [[ -n ${RELEASE_KEY-} ]]; then
		key=$(tail -n 1 "$work/key.pub")
		cp "$work/key.pub" "$out/minisign.pub"
	else
		rm -f "$out/minisign.pub"
		echo "RELEASE_KEY is not set: the release is not signed." >&2
	fi
	sed "s|@VERSION@|$version|g; s|@PUBLIC_KEY@|$key|; s|@URL@|$url|; s|@GLIBC@|$glibc|" scripts/release/install.sh >"$out/install.sh"
	chmod 0755 "$out/install.sh"
	cp CHANGELOG.md "$out"
	(cd "$out" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' ! -name '*.part' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
	rm -f "$out/SHA256SUMS.minisig"
	[[ -z $key ]] || minisign -S -s "$RELEASE_KEY" -x "$out/SHA256SUMS.minisig" -m "$out/SHA256SUMS" \
		-c "faas-infer $version" -t "faas-infer $version" </dev/null >/dev/null
}

if wants programs; then
	for arch in "${architectures[@]}"; do build_programs "$arch"; done
fi
files=()
for arch in "${architectures[@]}"; do files+=("$programs/$arch/faas-infer" "$programs/$arch/faas-infer-kubernetes"); done
if wants packages; then
	go run ./scripts/sbom -licences "${files[@]}" >"$work/THIRD-PARTY-LICENCES"
	go run -ldflags "-X $module/command/report.Commit=$commit -X $module/command/report.Release=$version" ./scripts/man "$work/man"
	for arch in "${architectures[@]}"; do
		tarball "$arch"
		debian "$arch"
	done
fi
! wants images || build_images
! wants charts || build_charts
for image in "$out"/faas-infer-"$version"-image-*.tar; do [[ ! -e $image ]] || files+=("$image"); done
go run ./scripts/sbom -version "$version" -epoch "$SOURCE_DATE_EPOCH" -onnxruntime "$("$programs/$(go env GOHOSTARCH)/faas-infer" version -o json | sed -n 's/.*"onnxRuntime": "\(.*\)".*/\1/p')" \
	"${files[@]}" >"$out/faas-infer-$version.spdx.json"
sign
echo "The release $version is in dist/$version."
