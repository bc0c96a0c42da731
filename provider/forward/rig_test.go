package forward

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(lingering{m}) }

// lingering runs tests, and then waits until net/http's server has closed connections
// that it has not read to their end.
type lingering struct{ *testing.M }

func (l lingering) Run() int {
	defer time.Sleep(600 * time.Millisecond)
	return l.M.Run()
}

// record counts what the forwarder records.
type record struct {
	mu      sync.Mutex
	batches int
	drops   map[metrics.Reason]int
}

func (r *record) ObserveBatch(int, time.Duration, *frame.Trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches++
}

func (r *record) ObserveQueue(time.Duration, *frame.Trace) {}

func (r *record) AddDrop(reason metrics.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drops == nil {
		r.drops = map[metrics.Reason]int{}
	}
	r.drops[reason]++
}

// function is an instance on a Unix socket.
type function struct {
	id      cluster.InstanceID
	address string
	// listener is closed with the server, even if that does not serve yet.
	listener net.Listener
	server   *http.Server
	// seen counts the requests that reached it.
	seen atomic.Int64
}

func start(t testing.TB, id string, handle http.HandlerFunc) *function {
	t.Helper()
	return startServer(t, id, &http.Server{}, handle)
}

func startServer(t testing.TB, id string, server *http.Server, handle http.HandlerFunc) *function {
	t.Helper()
	in := &function{id: cluster.InstanceID(id), address: filepath.Join(t.TempDir(), "s")}
	listener, err := net.Listen("unix", in.address)
	if err != nil {
		t.Fatal(err)
	}
	in.listener, in.server = listener, server
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.seen.Add(1)
		handle(w, r)
	})
	go in.server.Serve(listener)
	t.Cleanup(in.kill)
	return in
}

// kill breaks all connections and accepts no more.
func (in *function) kill() {
	in.listener.Close()
	in.server.Close()
}

// echo answers with the body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Write(body)
}

// answer answers with a text.
func answering(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

type rig struct {
	*Forwarder
	t      testing.TB
	record record
	url    string
	lost   atomic.Int64
	woken  atomic.Int64
	// keep, if set, counts what is kept of bodies.
	keep func(n int64) error
	// codes, if set, gets what Forward returns.
	codes chan<- int
}

// newRig returns a forwarder behind an HTTP server, at /NAME/….
func newRig(t testing.TB, o Options) *rig {
	r := &rig{t: t}
	if o.ColdWait == 0 {
		o.ColdWait = time.Minute
	}
	o.Recorder = &r.record
	o.OnCold = func() { r.woken.Add(1) }
	o.OnLost = func(cluster.InstanceID, error) { r.lost.Add(1) }
	r.Forwarder = New(o)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Call-Id", "ours")
		code := r.Forward(w, q, strings.TrimPrefix(q.URL.EscapedPath(), "/f"), 0, r.keep)
		if r.codes != nil {
			r.codes <- code
		}
	}))
	r.url = server.URL + "/f"
	t.Cleanup(server.Close)
	t.Cleanup(r.Forwarder.Close)
	return r
}

func (r *rig) up(in *function) { r.Up(in.id, "unix", in.address, 1) }

// client keeps no connections, so that none is left at the end.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends a body and returns the answer.
func (r *rig) post(body string) (code int, text string, header http.Header) {
	resp, err := client.Post(r.url+"/", "text/plain", strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0, "", nil
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return resp.StatusCode, string(got), resp.Header
}

// answers fails the test unless a request gets this answer.
func (r *rig) answers(code int, part string) {
	r.t.Helper()
	if got, text, _ := r.post("x"); got != code || !strings.Contains(text, part) {
		r.t.Fatalf("answered %d %q, want %d and %q", got, text, code, part)
	}
}

func post(body string) *frame.Request {
	return &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)}
}

func (r *rig) invoke(ctx context.Context, body string) (string, error) {
	resp, err := r.Invoke(ctx, post(body))
	if err != nil {
		return "", err
	}
	if resp.Status != http.StatusOK {
		return "", fmt.Errorf("status %d: %s", resp.Status, resp.Body)
	}
	return string(resp.Body), nil
}

// settled fails the test if any request still counts as in flight.
func (r *rig) settled() {
	r.t.Helper()
	waitFor(r.t, func() bool { s := r.Stats(); return s.InFlight == 0 && s.Waiting == 0 })
}

func waitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
	}
}
