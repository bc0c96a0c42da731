package build

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/go-sdk/builder"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// small mounts a file system of so many bytes, where the test may.
func small(t *testing.T, size string) (dir string, ok bool) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("bundles", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Logf("no file system of its own: %v; the full disk is tested as root only", err)
		return "", false
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

// If the disk becomes full during a build, the old bundle stays, and no file of the new
// one.
func TestFullDisk(t *testing.T) {
	root, ok := small(t, "4m")
	if !ok {
		return
	}
	h, _ := serve(t, Options{Root: root})
	h.reserve = 0
	if result := sent(t, h, archive(manifest, named("a"))); result.Status != builder.BuildSuccess {
		t.Fatalf("%+v", result)
	}
	free := func() uint64 {
		var disk unix.Statfs_t
		if err := unix.Statfs(root, &disk); err != nil {
			t.Fatal(err)
		}
		return disk.Bfree
	}
	before := free()
	// It is there once as a body and does not fit a second time, once as files.
	large := archive(manifest, named("a"), entry{name: "context/large", text: strings.Repeat("x", 3<<20)})
	unknown := struct{ *bytes.Reader }{bytes.NewReader(large)} // A body of unknown length is not refused at once.
	if w := post(h, unknown, sign(large, secret), ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"failed"`) {
		t.Errorf("no room to unpack: %d %s", w.Code, w.Body)
	}
	if w := post(h, bytes.NewReader(large), sign(large, secret), ""); w.Code != http.StatusInsufficientStorage || !strings.Contains(w.Body.String(), "MiB free") {
		t.Errorf("no room for a body of known length: %d %s", w.Code, w.Body)
	}
	huge := make([]byte, 6<<20)
	if w := post(h, struct{ *bytes.Reader }{bytes.NewReader(huge)}, sign(huge, secret), ""); w.Code != http.StatusInsufficientStorage {
		t.Errorf("no room for the body: %d %s", w.Code, w.Body)
	}
	// Full to the last byte: not even the directory for the files can be made.
	filler := filepath.Join(root, "filler")
	if err := os.WriteFile(filler, make([]byte, before*4096), 0o600); err != nil {
		t.Fatal(err)
	}
	body := archive(manifest, named("a"))
	if w := post(h, struct{ *bytes.Reader }{bytes.NewReader(body)}, sign(body, secret), ""); w.Code != http.StatusInsufficientStorage {
		t.Errorf("a full disk: %d %s", w.Code, w.Body)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if b, err := bundle.Open(root, "a"); err != nil || b.Process != "cat" {
		t.Errorf("%+v, %v", b, err)
	}
	if after := free(); after != before {
		t.Errorf("%d blocks were free, now %d", before, after)
	}
	nothingLeft(t, root)
}

// A build leaves the reserve free.
func TestReserve(t *testing.T) {
	h, _ := serve(t, Options{})
	h.reserve = 1 << 60
	body := archive(manifest, named("a"))
	w := post(h, bytes.NewReader(body), sign(body, secret), "")
	if w.Code != http.StatusInsufficientStorage || !strings.Contains(w.Body.String(), "remove bundles") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	nothingLeft(t, h.options.Root)
}
