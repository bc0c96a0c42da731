package copies

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/content"
)

// sourceOf makes a content of some files of a size.
func sourceOf(t *testing.T, size int, names ...string) content.Source {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name[:1]), size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	i, err := content.IndexOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return content.Source{Index: i, Dir: dir}
}

// agent serves a node's models for the namespace fn.
func agent(t *testing.T, tidier *Tidier) (m *Models, address string) {
	t.Helper()
	tidier.Namespaces = []string{"fn"}
	if err := os.MkdirAll(filepath.Join(tidier.Root, "fn"), 0o777); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m = &Models{Tidier: tidier, Log: zerolog.Nop(), Context: ctx}
	s := httptest.NewServer(m)
	t.Cleanup(func() {
		s.Close()
		cancel()
	})
	return m, s.URL
}

// find finds a content as an instance does.
func find(t *testing.T, tidier *Tidier, s content.Source) (path string, held *os.File) {
	name := s.Index.Name()
	return findModel(t.Context(), filepath.Join(tidier.Root, "fn", ModelDir(name)), name, os.Geteuid())
}

// A content that was sent once is there for all, and is not sent again.
func TestModels(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 1 << 30}
	_, address := agent(t, tidier)
	s := sourceOf(t, 1<<20, "model.onnx", "weights")
	to := address + ModelPath("fn", s.Index.Name())
	var bytes int64
	for range 2 {
		if err := content.Send(t.Context(), http.DefaultClient, to, s, func(n int64) { bytes += n }); err != nil {
			t.Fatal(err)
		}
	}
	if bytes != s.Index.Bytes() {
		t.Errorf("%d bytes were sent of a content of %d", bytes, s.Index.Bytes())
	}
	path, held := find(t, tidier, s)
	if held == nil {
		t.Fatal("the content is not there")
	}
	defer held.Close()
	if i, err := content.IndexOf(path); err != nil || i.Name() != s.Index.Name() {
		t.Errorf("%s: %v", path, err)
	}
	for _, wrong := range []string{"other/" + s.Index.Name(), "fn/" + s.Index.Name()[1:], "fn"} {
		_, err := content.Ask(t.Context(), http.DefaultClient, address+modelsPath+wrong)
		if !errors.Is(err, content.ErrNoReceiver) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	// It stays while an instance has it, and goes like a copy otherwise.
	tidier.Unused = time.Nanosecond
	tidier.looks(t, time.Now().Add(time.Minute))
	_ = held.Close()
	tidier.looks(t, time.Now().Add(2*time.Hour), "fn/"+ModelDir(s.Index.Name()))
}

// An instance may mount the directory before the content comes: what others put there by then is not used.
func TestModelsTrustNobody(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 1 << 30}
	_, address := agent(t, tidier)
	s := sourceOf(t, 100, "model.onnx")
	name := s.Index.Name()
	dir := filepath.Join(tidier.Root, "fn", ModelDir(name))
	forged := filepath.Join(dir, "content-"+name)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err = errors.Join(err, os.MkdirAll(forged, 0o777), os.Chmod(dir, 0o777|fs.ModeSticky),
		os.WriteFile(forged+".boot", boot, 0o644), os.WriteFile(filepath.Join(forged, "model.onnx"), []byte("bad"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, held := find(t, tidier, s); held != nil {
		t.Error("it believes a directory into which everybody writes")
	}
	if _, held := FindModel(t.Context(), dir, "no-name"); held != nil {
		t.Error("it finds what is no content")
	}
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := content.Send(t.Context(), http.DefaultClient, address+ModelPath("fn", name), s, nil); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Error("those that have mounted the directory do not see the content")
	}
	path, held := find(t, tidier, s)
	if held == nil {
		t.Fatal("the content is not there")
	}
	defer held.Close()
	if text, err := os.ReadFile(filepath.Join(path, "model.onnx")); err != nil || string(text) == "bad" {
		t.Errorf("%q, %v", text, err)
	}
}

// A content gets the room of copies that nobody uses, the least recently used ones first. It gets no other room.
func TestModelsMakeRoom(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 5 << 20}
	_, address := agent(t, tidier)
	send := func(s content.Source) error {
		return content.Send(t.Context(), http.DefaultClient, address+ModelPath("fn", s.Index.Name()), s, nil)
	}
	first, second, third := sourceOf(t, 2<<20, "a"), sourceOf(t, 2<<20, "b"), sourceOf(t, 2<<20, "c")
	if err := errors.Join(send(first), send(second)); err != nil {
		t.Fatal(err)
	}
	_, held := find(t, tidier, first) // So the other one goes.
	if err := send(third); err != nil {
		t.Fatal(err)
	}
	if _, gone := find(t, tidier, second); gone != nil {
		t.Error("the unused content is still there")
	}
	_, other := find(t, tidier, third)
	if held == nil || other == nil {
		t.Fatal("a content is missing")
	}
	if err := send(second); !errors.Is(err, content.ErrRefused) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("more than there is room for: %v", err)
	}
	tidier.Size, tidier.KeepFree = 1<<40, 100
	if err := send(second); !errors.Is(err, content.ErrRefused) || !strings.Contains(err.Error(), "stay free") {
		t.Errorf("the last of the disk: %v", err)
	}
	_, _ = held.Close(), other.Close()
}

// No more than a few contents arrive at a time, and what broke off goes on.
func TestModelsArriveFewAtATime(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 1 << 30}
	m, address := agent(t, tidier)
	var all []content.Source
	for _, name := range strings.Split("abcde", "")[:maxArrivals+1] {
		all = append(all, sourceOf(t, 1000, name))
	}
	client := http.DefaultClient
	for i, s := range all {
		state, err := content.Ask(t.Context(), client, address+ModelPath("fn", s.Index.Name()))
		if full := i == maxArrivals; (err != nil) != full || !full && state.Needs != content.NeedsIndex {
			t.Errorf("content %d: %+v, %v", i, state, err)
		}
	}
	if err := content.Send(t.Context(), client, address+ModelPath("fn", all[0].Index.Name()), all[0], nil); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		m.mu.Lock()
		n := len(m.arriving)
		m.mu.Unlock()
		if n < maxArrivals {
			break
		}
		time.Sleep(time.Millisecond) // It has answered before it forgets the arrival.
	}
	if err := content.Send(t.Context(), client, address+ModelPath("fn", all[maxArrivals].Index.Name()), all[maxArrivals], nil); err != nil {
		t.Error(err)
	}
}
