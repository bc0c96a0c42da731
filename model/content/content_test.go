package content

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// made writes files and returns them as a source.
func made(t *testing.T, files map[string][]byte) Source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	i, err := IndexOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Source{Index: i, Dir: dir}
}

func model(t *testing.T) Source {
	return made(t, map[string][]byte{"bundle.yaml": []byte("name: model"), "empty": nil, "onnx/model.onnx": bytes.Repeat([]byte("weights"), 400_000)})
}

// waits runs a receiver's Wait behind a server until the test ends.
type waits struct {
	*Receiver
	server *httptest.Server
	dir    chan string
	end    func()
}

func wait(t *testing.T, dir, name string) *waits {
	t.Helper()
	r, err := NewReceiver(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &waits{Receiver: r, server: httptest.NewServer(r), dir: make(chan string, 1)}
	var all sync.WaitGroup
	all.Go(func() {
		whole, _ := r.Wait(ctx)
		w.dir <- whole
	})
	w.end = sync.OnceFunc(func() {
		w.server.CloseClientConnections()
		cancel()
		all.Wait()
		w.server.Close()
	})
	t.Cleanup(w.end)
	return w
}

// client keeps no connection, so that servers can end.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// equal compares what was received with what was sent.
func equal(t *testing.T, dir string, s Source) {
	t.Helper()
	i, err := IndexOf(dir)
	if err != nil || i.Name() != s.Index.Name() {
		t.Errorf("received %+v, %v; sent %+v", i, err, s.Index)
	}
}

func TestSend(t *testing.T) {
	s, dir := model(t), t.TempDir()
	w := wait(t, dir, s.Index.Name())
	var sent int64
	if err := Send(t.Context(), client, w.server.URL, s, func(n int64) { sent += n }); err != nil {
		t.Fatal(err)
	}
	equal(t, <-w.dir, s)
	if sent != s.Index.Bytes() {
		t.Errorf("sent %d of %d bytes", sent, s.Index.Bytes())
	}
	again, err := NewReceiver(dir, s.Index.Name())
	if err != nil || again.Find() == "" {
		t.Errorf("it is not found: %v", err)
	}
}

// A transfer that was broken off needs room only for what is missing.
func TestRoomForTheRest(t *testing.T) {
	s, dir := model(t), t.TempDir()
	r, err := NewReceiver(dir, s.Index.Name())
	if err != nil {
		t.Fatal(err)
	}
	const here = 1_000_000
	part := filepath.Join(r.part(), "onnx", "model.onnx")
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o755), os.WriteFile(part, bytes.Repeat([]byte("weights"), 400_000)[:here], 0o644)); err != nil {
		t.Fatal(err)
	}
	if got := r.present(&s.Index); got != here {
		t.Errorf("%d bytes are here, not %d", got, here)
	}
}

// A write on a full disk may write a part and fail. It is done again in its place.
func TestWritesGoToTheirPlace(t *testing.T) {
	s, dir := model(t), t.TempDir()
	w := wait(t, dir, s.Index.Name())
	for w.State().Needs != NeedsIndex {
		runtime.Gosched()
	}
	if err := w.putIndex(bytes.NewReader(s.Index.text())); err != nil {
		t.Fatal(err)
	}
	if _, err := w.file.WriteString("na"); err != nil { // It is not counted.
		t.Fatal(err)
	}
	if err := Send(t.Context(), client, w.server.URL, s, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	equal(t, <-w.dir, s)
}

// Two processes share a directory: one receives, and the other has it, too. After the first one's death the second
// goes on with what is there.
func TestShared(t *testing.T) {
	s, dir := model(t), t.TempDir()
	first := wait(t, dir, s.Index.Name())
	awaitNeed(t, first, NeedsIndex)
	second := wait(t, dir, s.Index.Name())
	if n := second.State().Needs; n != NeedsOther {
		t.Errorf("the second one needs %s", n)
	}
	half := &breaking{after: s.Index.Bytes() / 2}
	if err := Send(t.Context(), half.client(), first.server.URL, s, nil); err == nil {
		t.Error("the connection did not break")
	}
	for end := time.Now().Add(time.Minute); first.State().From == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing has arrived")
		}
	}
	first.end()
	awaitNeed(t, second, NeedsIndex)
	var sent int64
	if err := Send(t.Context(), client, second.server.URL, s, func(n int64) { sent += n }); err != nil {
		t.Fatal(err)
	}
	equal(t, <-second.dir, s)
	if sent >= s.Index.Bytes() {
		t.Errorf("sent %d of %d bytes again", sent, s.Index.Bytes())
	}
}

// A sender waits while an earlier one holds the turn, as that of a leader whose machine is gone does for a while. It
// says meanwhile that the content may still come.
func TestSendersTakeTurns(t *testing.T) {
	s := model(t)
	w := wait(t, t.TempDir(), s.Index.Name())
	awaitNeed(t, w, NeedsIndex)
	body, earlier := io.Pipe()
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.server.URL+IndexPath, body)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if answer, err := client.Do(put); err == nil {
			_ = answer.Body.Close()
		}
	})
	for end := time.Now().Add(time.Minute); len(w.turn) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the earlier sender has not begun")
		}
	}
	waits := 0
	err = Send(t.Context(), client, w.server.URL, s, func(n int64) {
		if n > 0 {
			return
		}
		if waits++; waits == maxRefusals {
			_ = earlier.CloseWithError(errors.New("broken"))
		}
	})
	if err != nil || waits < maxRefusals {
		t.Fatalf("after %d waits: %v", waits, err)
	}
	equal(t, <-w.dir, s)
}

// Nothing is read for a sender that has its answer.
func TestReaderIsClosed(t *testing.T) {
	r := &reader{of: model(t), sent: func(int64) { t.Error("bytes were sent") }}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Error(n, err)
	}
}

func awaitNeed(t *testing.T, w *waits, n Need) {
	t.Helper()
	for end := time.Now().Add(time.Minute); w.State().Needs != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it needs %s", w.State().Needs)
		}
	}
}

// breaking is a client whose connections break after a number of bytes.
type breaking struct{ after int64 }

func (b *breaking) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &brokenConn{c, b.after}, err
	}}}
}

type brokenConn struct {
	net.Conn
	left int64
}

func (c *brokenConn) Write(text []byte) (int, error) {
	if c.left -= int64(len(text)); c.left < 0 {
		return 0, errors.Join(errors.New("broken"), c.Close())
	}
	return c.Conn.Write(text)
}

// Files with other bytes than the index says are never published.
func TestWrongBytes(t *testing.T) {
	s := model(t)
	file := filepath.Join(s.Dir, "onnx/model.onnx")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[1000]++
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w := wait(t, t.TempDir(), s.Index.Name())
	awaitNeed(t, w, NeedsIndex)
	err = Send(t.Context(), client, w.server.URL, s, nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "SHA-256") {
		t.Error(err)
	}
	if w.Find() != "" {
		t.Error("it was published")
	}
	text[1000]--
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Send(t.Context(), client, w.server.URL, s, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, <-w.dir, s)
}

// A content that cannot be published is not said to be here. It is published once that is possible.
func TestPublishFails(t *testing.T) {
	s := model(t)
	w := wait(t, t.TempDir(), s.Index.Name())
	awaitNeed(t, w, NeedsIndex)
	if err := os.Mkdir(w.mark(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Send(t.Context(), client, w.server.URL, s, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("the sender is told %v", err)
	}
	if needs := w.State().Needs; needs != NeedsIndex || w.Find() != "" {
		t.Errorf("it needs %s, and finds %q", needs, w.Find())
	}
	if err := os.Remove(w.mark()); err != nil {
		t.Fatal(err)
	}
	again := int64(0)
	if err := Send(t.Context(), client, w.server.URL, s, func(n int64) { again += n }); err != nil || again > 0 {
		t.Errorf("%d bytes were sent again: %v", again, err)
	}
	equal(t, <-w.dir, s)
}

// A receiver that reads or makes room says meanwhile what it needs.
func TestStateIsAnsweredMeanwhile(t *testing.T) {
	s := model(t)
	w := wait(t, t.TempDir(), s.Index.Name())
	awaitNeed(t, w, NeedsIndex)
	asked := false
	w.Room = func(int64) error {
		_, err := Ask(t.Context(), client, w.server.URL)
		asked = err == nil
		return err
	}
	if err := Send(t.Context(), client, w.server.URL, s, nil); err != nil || !asked {
		t.Errorf("asked: %v, %v", asked, err)
	}
	equal(t, <-w.dir, s)
}

// Nothing but the index of the content is accepted, and no path leads out of it.
func TestWrongIndex(t *testing.T) {
	s, other := model(t), made(t, map[string][]byte{"model.onnx": []byte("other")})
	w := wait(t, t.TempDir(), s.Index.Name())
	awaitNeed(t, w, NeedsIndex)
	if err := Send(t.Context(), client, w.server.URL, other, nil); err == nil {
		t.Error("another content was accepted")
	}
	put, err := http.NewRequest(http.MethodPut, w.server.URL+IndexPath, bytes.NewReader(other.Index.text()))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(put)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnprocessableEntity || w.State().Needs != NeedsIndex {
		t.Errorf("%s, %+v", answer.Status, w.State())
	}
	for _, path := range []string{"../up", "/etc/passwd", "a/../../b", "", "a//b", "./a"} {
		i := Index{Files: []File{{Path: path, Size: 1, Sum: strings.Repeat("0", 64)}}}
		if _, err := parseIndex(i.text(), i.Name()); err == nil {
			t.Errorf("the path %q was accepted", path)
		}
	}
	for _, name := range []string{"", "..", strings.Repeat("0", 63), strings.Repeat("A", 64)} {
		if _, err := NewReceiver(t.TempDir(), name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
}

// A server that has its model is no receiver. A proxy's answer says nothing of the instance behind it, nor does a
// refusal.
func TestNoReceiver(t *testing.T) {
	for status, none := range map[int]bool{
		http.StatusNotFound: true, http.StatusServiceUnavailable: false, http.StatusUnauthorized: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if _, err := Ask(t.Context(), client, server.URL); err == nil || errors.Is(err, ErrNoReceiver) != none {
			t.Errorf("%d: %v", status, err)
		}
		server.Close()
	}
}

// After the machine has started again, what was received is read before it is used.
func TestAfterAReboot(t *testing.T) {
	s, dir := model(t), t.TempDir()
	w := wait(t, dir, s.Index.Name())
	if err := Send(t.Context(), client, w.server.URL, s, nil); err != nil {
		t.Fatal(err)
	}
	whole := <-w.dir
	if err := os.WriteFile(w.mark(), []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	if w.Find() != whole {
		t.Error("a whole content is not found")
	}
	if err := errors.Join(os.WriteFile(w.mark(), []byte("earlier"), 0o600), os.Truncate(filepath.Join(whole, "onnx/model.onnx"), 100)); err != nil {
		t.Fatal(err)
	}
	if w.Find() != "" {
		t.Error("a content that lacks bytes is found")
	}
	again := wait(t, dir, s.Index.Name())
	awaitNeed(t, again, NeedsIndex)
	if err := Send(t.Context(), client, again.server.URL, s, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, <-again.dir, s)
}

// Any index either is refused or names files inside the directory, each once.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"files":[{"path":"a","size":1,"sum":"00"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var i Index
		i, err := parseIndex(text, "")
		if err == nil {
			t.Fatalf("%+v has no name", i)
		}
		if i, err = parseIndex(text, i.Name()); err != nil {
			return
		}
		for _, file := range i.Files {
			if !filepath.IsLocal(file.Path) {
				t.Errorf("%q", file.Path)
			}
		}
	})
}
