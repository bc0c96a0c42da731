package onnxruntime

import (
	"archive/zip"
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
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// wheelName is the wheel on PyPI that scripts/onnxruntime.sh fetches for CPUs, wheelSum and librarySum are the
// SHA-256 of it and of the library in it.
const (
	wheelName  = "onnxruntime-" + LibraryVersion + "-cp311-cp311-manylinux_2_28_x86_64.whl"
	wheelSum   = "5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d"
	librarySum = "6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f"
	inWheel    = "onnxruntime/capi/libonnxruntime.so." + LibraryVersion
)

// maxWheel and maxIndex are the maximum sizes of a wheel and of an index's page in bytes.
const (
	maxWheel = 256 << 20
	maxIndex = 32 << 20
)

// DefaultIndex is the Python package index from which Fetch takes the library unless told otherwise.
const DefaultIndex = "https://pypi.org/simple"

// ErrNoNetwork is wrapped by Fetch's error if the index cannot be reached.
var ErrNoNetwork = errors.New("no network")

// Fetch downloads the wheel of the library for CPUs from a Python package index and returns the path of the
// library that Install makes of it. progress, which may be nil, is called with the bytes so far and in all.
func Fetch(ctx context.Context, index string, progress func(done, total int)) (string, error) {
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
	return Install(wheel.Name())
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

// Install puts the library of a file where LibraryPath expects it and returns that path. The file is the
// wheel or the library itself. Both must have the sums of the version that this program is tested with. A
// library that is there already is replaced as a whole or not at all.
func Install(file string) (string, error) {
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		return "", fmt.Errorf("ONNX Runtime %s is tested on linux/amd64 only, this is %s/%s: set %s to the path of a library of your own", LibraryVersion, runtime.GOOS, runtime.GOARCH, LibraryEnv)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder: %w; set XDG_CACHE_HOME", err)
	}
	path := libraryIn(cache)
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
	case librarySum:
		_, err = f.Seek(0, io.SeekStart)
	case wheelSum:
		var archive *zip.ReadCloser
		if archive, err = zip.OpenReader(file); err != nil {
			break
		}
		defer archive.Close()
		library, err = archive.Open(inWheel)
	default:
		return "", fmt.Errorf("%s has the SHA-256 %s: it must be %s (%s) or its library (%s)", file, sum, wheelName, wheelSum, librarySum)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return path, writeLibrary(library, path)
}

// writeLibrary copies a library to its path by a rename, after its sum was checked.
func writeLibrary(library io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep the library: %w; set XDG_CACHE_HOME to a directory that this user can write", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "fetch.*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // It is gone after the rename.
	sum, err := sumOf(io.TeeReader(library, f))
	if err := errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	if sum != librarySum {
		return fmt.Errorf("the library has the SHA-256 %s instead of %s", sum, librarySum)
	}
	return os.Rename(f.Name(), path)
}

func sumOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
