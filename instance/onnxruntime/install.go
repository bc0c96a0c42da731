package onnxruntime

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// release is the library for one architecture, in the wheel on PyPI for one platform.
type release struct {
	// platform is the platform tag of the wheel, and architecture Go's name of it.
	platform, architecture string
	// wheelSum and librarySum are the SHA-256 of the wheel and of the library in it.
	wheelSum, librarySum string
}

// releases are the builds of the library for CPUs with which this program is tested.
var releases = []release{
	{
		platform:     "manylinux_2_28_x86_64",
		architecture: "amd64",
		wheelSum:     "5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d",
		librarySum:   "6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f",
	},
	{
		platform:     "manylinux_2_28_aarch64",
		architecture: "arm64",
		wheelSum:     "2303372a85299b6757b0e11e1cbf13e410ddf7e10c37f4b37e99d1c90e7daf7c",
		librarySum:   "49852228a93995158b2a813d4df487d47a1b76b0eaa894507ef49e91b6d7954a",
	},
}

// inWheel is the path of the library in a wheel.
const inWheel = "onnxruntime/capi/libonnxruntime.so." + LibraryVersion

// Architectures lists the architectures for which Fetch and Install know the library, by Go's names.
func Architectures() (names []string) {
	for _, b := range releases {
		names = append(names, b.architecture)
	}
	return names
}

// WheelPlatform returns the platform tag of an architecture's wheel on PyPI, "" if there is none.
func WheelPlatform(architecture string) string {
	b, err := releaseFor(architecture)
	if err != nil {
		return ""
	}
	return b.platform
}

// WheelName returns the name of an architecture's wheel on PyPI.
func WheelName(architecture string) string {
	return "onnxruntime-" + LibraryVersion + "-cp311-cp311-" + WheelPlatform(architecture) + ".whl"
}

func releaseFor(architecture string) (release, error) {
	for _, b := range releases {
		if b.architecture == architecture {
			return b, nil
		}
	}
	return release{}, fmt.Errorf("ONNX Runtime %s is tested on %s only, this is %s: set %s to the path of a library of your own",
		LibraryVersion, strings.Join(Architectures(), " and "), architecture, LibraryEnv)
}

// InstalledPath returns the path where Install puts the library of an architecture. LibraryPath returns the
// same for that of this machine, unless the environment names another library.
func InstalledPath(architecture string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder: %w; set XDG_CACHE_HOME", err)
	}
	if architecture == runtime.GOARCH {
		return libraryIn(cache), nil
	}
	return filepath.Join(cache, "faas-infer", "onnxruntime", LibraryVersion+"-"+architecture, "libonnxruntime.so"), nil
}

// maxWheel and maxIndex are the maximum sizes of a wheel and of an index's page in bytes.
const (
	maxWheel = 256 << 20
	maxIndex = 32 << 20
)

// DefaultIndex is the Python package index from which Fetch takes the library unless told otherwise.
const DefaultIndex = "https://pypi.org/simple"

// ErrNoNetwork is wrapped by Fetch's error if the index cannot be reached.
var ErrNoNetwork = errors.New("no network")

// Fetch downloads the wheel of the library for CPUs of an architecture from a Python package index and returns
// the path of the library that Install makes of it. progress, which may be nil, is called with the bytes so far
// and in all.
func Fetch(ctx context.Context, index, architecture string, progress func(done, total int)) (string, error) {
	if _, err := releaseFor(architecture); err != nil {
		return "", err
	}
	wheelName := WheelName(architecture)
	page := strings.TrimSuffix(index, "/") + "/onnxruntime/"
	response, err := get(ctx, page)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxIndex))
	response.Body.Close()
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrNoNetwork, response.Request.URL.Redacted(), err)
	}
	// Both forms of an index have quoted addresses: HTML, and JSON (PEP 691).
	m := regexp.MustCompile(`"([^"]*/` + regexp.QuoteMeta(wheelName) + `(?:#[^"]*)?)"`).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("the index %s has no %s", response.Request.URL.Redacted(), wheelName)
	}
	at, err := url.Parse(html.UnescapeString(string(m[1])))
	if err != nil {
		return "", fmt.Errorf("the index %s: %w", response.Request.URL.Redacted(), err)
	}
	if response, err = get(ctx, response.Request.URL.ResolveReference(at).String()); err != nil {
		return "", err
	}
	defer response.Body.Close()
	wheel, err := os.CreateTemp("", "onnxruntime-*.whl")
	if err != nil {
		return "", err
	}
	defer os.Remove(wheel.Name())
	defer wheel.Close()
	done := 0
	body := io.TeeReader(io.LimitReader(response.Body, maxWheel), counter(func(n int) {
		if done += n; progress != nil && response.ContentLength > 0 {
			progress(done, int(response.ContentLength))
		}
	}))
	if _, err := io.Copy(wheel, body); err != nil {
		return "", fmt.Errorf("%w: %s broke off after %d bytes: %w", ErrNoNetwork, wheelName, done, err)
	}
	return Install(wheel.Name(), architecture)
}

// counter is a writer that counts.
type counter func(n int)

// Write implements [io.Writer].
func (c counter) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}

func get(ctx context.Context, at string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s answers %s", request.URL.Redacted(), response.Status)
	}
	return response, nil
}

// Install puts the library of a file where InstalledPath expects it and returns that path. The file is the wheel
// of the architecture, the library itself, or a compressed tar (.tgz) with the library in it. The library must
// have the sum of the version that this program is tested with. A library that is there already is replaced as
// a whole or not at all.
func Install(file, architecture string) (string, error) {
	b, err := releaseFor(architecture)
	if err != nil {
		return "", err
	}
	to, err := InstalledPath(architecture)
	if err != nil {
		return "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, err := sumOf(f)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	var library io.Reader = f
	switch sum {
	case b.librarySum:
		_, err = f.Seek(0, io.SeekStart)
	case b.wheelSum:
		var archive *zip.ReadCloser
		if archive, err = zip.OpenReader(file); err != nil {
			break
		}
		defer archive.Close()
		library, err = archive.Open(inWheel)
	default:
		if library = inTar(f); library == nil {
			return "", fmt.Errorf("%s has the SHA-256 %s: it must be %s (%s), its library (%s), or a .tgz with that",
				file, sum, WheelName(architecture), b.wheelSum, b.librarySum)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	if err := writeLibrary(library, to, b.librarySum); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return to, nil
}

// inTar returns the library in a compressed tar, nil if the file is no such tar or has no library. Links to the
// library, which the project's own releases have beside it, are skipped.
func inTar(f io.ReadSeeker) io.Reader {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	tape := tar.NewReader(unpacked)
	for {
		header, err := tape.Next()
		if err != nil {
			return nil
		}
		if header.Typeflag == tar.TypeReg && strings.HasPrefix(path.Base(header.Name), "libonnxruntime.so") {
			return tape
		}
	}
}

// writeLibrary copies a library to its path by a rename, after its sum was checked.
func writeLibrary(library io.Reader, path, want string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep the library: %w; set XDG_CACHE_HOME to a directory that this user can write", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "fetch.*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // It is gone after the rename.
	sum, err := sumOf(io.TeeReader(io.LimitReader(library, maxWheel), f))
	if err := errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	if sum != want {
		return fmt.Errorf("the library has the SHA-256 %s instead of %s", sum, want)
	}
	return os.Rename(f.Name(), path)
}

func sumOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
