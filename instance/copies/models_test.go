package copies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/filelock/workdir"
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

// put sends the index of a content, so that it begins to arrive.
func put(t *testing.T, address string, s content.Source) (status int, text string) {
	t.Helper()
	index, err := json.Marshal(s.Index)
	if err != nil {
		t.Fatal(err)
	}
	to := address + ModelPath("fn", s.Index.Name()) + content.IndexPath
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, to, bytes.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}

// arrivals waits until no more than so many contents arrive: an answer is there before its arrival is forgotten.
func arrivals(m *Models, most int) {
	for {
		m.mu.Lock()
		n := len(m.arriving)
		m.mu.Unlock()
		if n <= most {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// No more than a few contents arrive at a time, and what broke off goes on. A question takes none of their places.
func TestModelsArriveFewAtATime(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 1 << 30}
	m, address := agent(t, tidier)
	var all []content.Source
	for _, name := range strings.Split("abcde", "")[:maxArrivals+1] {
		all = append(all, sourceOf(t, 1000, name))
	}
	ask := func(want content.Need) {
		t.Helper()
		for i, s := range all {
			state, err := content.Ask(t.Context(), http.DefaultClient, address+ModelPath("fn", s.Index.Name()))
			if i < maxArrivals && state.Needs != want || i == maxArrivals && state.Needs != content.NeedsIndex || err != nil {
				t.Errorf("content %d: %+v, %v", i, state, err)
			}
		}
	}
	ask(content.NeedsIndex)
	if left, err := os.ReadDir(filepath.Join(tidier.Root, "fn")); err != nil || len(left) > 0 {
		t.Errorf("a question leaves %v: %v", left, err)
	}
	for i, s := range all {
		status, text := put(t, address, s)
		if full := i == maxArrivals; full != (status == http.StatusServiceUnavailable) || !full && status != http.StatusOK {
			t.Errorf("content %d: %d, %s", i, status, text)
		}
	}
	ask(content.NeedsBytes)
	for _, s := range []content.Source{all[0], all[maxArrivals]} {
		if err := content.Send(t.Context(), http.DefaultClient, address+ModelPath("fn", s.Index.Name()), s, nil); err != nil {
			t.Fatal(err)
		}
		arrivals(m, maxArrivals-1)
	}
}

// What arrives is counted with all bytes that it will have, and nothing of it is removed meanwhile.
func TestArrivalsKeepTheirRoom(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 5 << 20}
	m, address := agent(t, tidier)
	first, second := sourceOf(t, 3<<20, "a"), sourceOf(t, 3<<20, "b")
	if status, text := put(t, address, first); status != http.StatusOK {
		t.Fatal(status, text)
	}
	for range 2 {
		if status, text := put(t, address, second); status != http.StatusUnprocessableEntity {
			t.Errorf("both have 6 of 5 MiB: %d, %s", status, text)
		}
		arrivals(m, 1) // What was refused leaves its place.
	}
	tidier.Size = 1000
	tidier.looks(t, time.Now().Add(2*time.Hour), "fn/"+ModelDir(second.Index.Name()))
	tidier.Size = 5 << 20
	if err := content.Send(t.Context(), http.DefaultClient, address+ModelPath("fn", first.Index.Name()), first, nil); err != nil {
		t.Error(err)
	}
	arrivals(m, 0)
	if len(tidier.coming) > 0 {
		t.Errorf("it still waits for %v", tidier.coming)
	}
	if err := content.Send(t.Context(), http.DefaultClient, address+ModelPath("fn", second.Index.Name()), second, nil); err != nil {
		t.Errorf("the first one is unused: %v", err)
	}
}

// Two contents that fit the disk one at a time do not arrive together.
func TestArrivalsShareTheDisk(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 1 << 60}
	_, address := agent(t, tidier)
	var disk unix.Statfs_t
	if err := unix.Statfs(tidier.Root, &disk); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusOK, http.StatusUnprocessableEntity} {
		file := content.File{Path: "model.onnx", Size: int64(disk.Bavail) * disk.Bsize / 5 * 3, Sum: strings.Repeat(fmt.Sprint(i), 64)}
		s := content.Source{Index: content.Index{Files: []content.File{file}}}
		if status, text := put(t, address, s); status != want {
			t.Errorf("content %d: %d, %s", i, status, text)
		}
	}
}

// asAhead sends ahead of instances.
type asAhead struct{}

func (asAhead) RoundTrip(q *http.Request) (*http.Response, error) {
	Ahead(q.Header)
	return http.DefaultTransport.RoundTrip(q)
}

// A content that is sent ahead of instances does not evict what was used lately. So contents that do not fit together do
// not take turns.
func TestModelsAheadWait(t *testing.T) {
	tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 5 << 20}
	_, address := agent(t, tidier)
	all := []content.Source{sourceOf(t, 2<<20, "a"), sourceOf(t, 2<<20, "b"), sourceOf(t, 2<<20, "c")}
	send := func(i int, client *http.Client) error {
		return content.Send(t.Context(), client, address+ModelPath("fn", all[i].Index.Name()), all[i], nil)
	}
	ahead := &http.Client{Transport: asAhead{}}
	if err := errors.Join(send(0, ahead), send(1, ahead)); err != nil {
		t.Fatal(err)
	}
	if err := send(2, ahead); !errors.Is(err, content.ErrRefused) || !strings.Contains(err.Error(), "wanted as much") {
		t.Error(err)
	}
	first := filepath.Join(tidier.Root, "fn", ModelDir(all[0].Index.Name()))
	workdir.Use(first, time.Now().Add(-2*ConfirmAfter))
	if err := send(2, ahead); err != nil {
		t.Error(err)
	}
	if err := send(0, http.DefaultClient); err != nil {
		t.Errorf("an instance waits for it: %v", err)
	}
}

// The directory of a content may be another user's, a link, or closed since a seal that failed: nothing in it is believed.
func TestSeal(t *testing.T) {
	s := sourceOf(t, 100, "model.onnx")
	name := s.Index.Name()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(dir, outside string) error{
		"closed": func(dir, _ string) error { return os.Chmod(dir, closed) },
		"link":   func(dir, outside string) error { return errors.Join(os.Rename(dir, outside), os.Symlink(outside, dir)) },
		"file":   func(dir, _ string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
		"other": func(dir, _ string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(dir, 0o775) // Only root can give it away.
			}
			return os.Chown(dir, 12345, 12345)
		},
	} {
		tidier := &Tidier{Root: t.TempDir(), Unused: time.Hour, Size: 1 << 30}
		_, address := agent(t, tidier)
		dir, outside := filepath.Join(tidier.Root, "fn", ModelDir(name)), filepath.Join(t.TempDir(), "outside")
		forged := filepath.Join(dir, "content-"+name)
		err := errors.Join(os.MkdirAll(filepath.Join(forged, "below"), 0o755), os.WriteFile(forged+".boot", boot, 0o644),
			os.WriteFile(filepath.Join(forged, "model.onnx"), []byte("bad"), 0o644), spoil(dir, outside))
		if err != nil {
			t.Fatal(what, err)
		}
		if _, held := find(t, tidier, s); held != nil {
			t.Errorf("%s: it is believed", what)
		}
		if err := content.Send(t.Context(), http.DefaultClient, address+ModelPath("fn", name), s, nil); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		path, held := find(t, tidier, s)
		if held == nil {
			t.Fatalf("%s: the content is not there", what)
		}
		if i, err := content.IndexOf(path); err != nil || i.Name() != name {
			t.Errorf("%s: %+v, %v", what, i, err)
		}
		_ = held.Close()
		if text, err := os.ReadFile(filepath.Join(outside, "content-"+name, "model.onnx")); what == "link" && (err != nil || string(text) != "bad") {
			t.Errorf("outside has %q: %v", text, err)
		}
		tidier.looks(t, time.Now())
		if left, err := os.ReadDir(filepath.Join(tidier.Root, "fn")); err != nil || len(left) != 1 {
			t.Errorf("%s: the tidier leaves %v, %v", what, left, err)
		}
	}
}

// One look for a content serves all who ask meanwhile, and no question for another content waits for it.
func TestLookupsWaitForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Models{Tidier: &Tidier{Root: t.TempDir(), Namespaces: []string{"fn"}}, Log: zerolog.Nop(), Context: t.Context()}
		busy, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
		dir := filepath.Join(m.Tidier.Root, ModelDir(busy))
		if err := os.Mkdir(dir, private); err != nil {
			t.Fatal(err)
		}
		held, err := workdir.Hold(t.Context(), dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		if err := filelock.Try(held, filelock.Exclusive); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if needs := m.look(t.Context(), ModelDir(busy), busy); needs == content.NeedsNothing {
					t.Error("it is not here")
				}
			})
		}
		synctest.Wait()
		if len(m.lookups) != 1 {
			t.Errorf("%d looks for one content", len(m.lookups))
		}
		began := time.Now()
		if needs := m.look(t.Context(), ModelDir(other), other); needs != content.NeedsIndex || time.Since(began) > 0 {
			t.Errorf("another content needs %s after %v", needs, time.Since(began))
		}
		all.Wait()
	})
}
