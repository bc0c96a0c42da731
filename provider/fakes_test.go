package provider

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dispatcherFunc answers requests by a function.
type dispatcherFunc func(ctx context.Context, req *frame.Request) (*frame.Response, error)

func (f dispatcherFunc) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return f(ctx, req)
}

// echo answers with the request's body.
func echo(_ context.Context, req *frame.Request) (*frame.Response, error) {
	return &frame.Response{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: req.Body}, nil
}

// fakeController runs nothing and records its calls.
type fakeController struct {
	mu         sync.Mutex
	dispatcher Dispatcher
	refuse     error
	deployed   map[string]*Function
	scaled     map[string]uint64
	problem    string
	// stopped: no instance is ready.
	stopped bool
	// slight: the problem keeps no instance from serving.
	slight bool
	reach  string
	// refused are errors by image.
	refused map[string]error
	// missing is the argument of Restoring.
	missing func(string) bool
}

func (c *fakeController) Deploy(_ context.Context, f *Function) (Dispatcher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	if err := c.refused[f.Deployment.Image]; err != nil {
		return nil, err
	}
	c.deployed[f.Name] = f
	return c.dispatcher, nil
}

func (c *fakeController) Remove(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deployed, name)
	return nil
}

func (c *fakeController) Scale(name string, replicas uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaled[name] = replicas
	return nil
}

func (c *fakeController) Restoring(missing func(string) bool) { c.missing = missing }

func (c *fakeController) Status(name string) (Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.deployed[name]
	available := uint64(1)
	if c.stopped {
		available = 0
	}
	return Status{Replicas: 2, AvailableReplicas: available, Usage: cluster.Resources{CPU: 250, Memory: 1 << 20}, Problem: c.problem, Slight: c.slight, Reach: c.reach}, ok
}

// brokenStore is a store on a full disk.
type brokenStore struct{ Store }

func (brokenStore) PutFunction(store.Function) error { return errors.New("no space left on device") }

// rig is a server with fakes behind it.
type rig struct {
	*Server
	controller *fakeController
	store      *store.Store
	registry   *prometheus.Registry
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newRig(t testing.TB, edit func(o *Options)) *rig {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.PutNamespace(store.Namespace{Name: "team-a", CreatedAt: now}); err != nil {
		t.Fatal(err)
	}
	c := &fakeController{dispatcher: dispatcherFunc(echo), deployed: map[string]*Function{}, scaled: map[string]uint64{}}
	registry := prometheus.NewPedanticRegistry()
	o := Options{Store: s, Controller: c, Metrics: metrics.New(registry), Gatherer: registry, Logger: zerolog.Nop(),
		Hosts:   []string{"example.com"}, // That of httptest.NewRequest.
		Version: types.VersionInfo{Release: "0.1.0", SHA: "abc"}, Now: func() time.Time { return now }}
	if edit != nil {
		edit(&o)
	}
	return &rig{Server: New(o), controller: c, store: s, registry: registry}
}

// names is the number of names under which requests find functions.
func (r *rig) names() (n int) {
	r.functions.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// do sends one request through the handler.
func (r *rig) do(method, target, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return w
}

// deployment returns a valid deployment as JSON, after edit.
func deployment(edit func(d *types.FunctionDeployment)) string {
	d := types.FunctionDeployment{Service: "mnist", Image: "mnist:latest",
		Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms"}}
	if edit != nil {
		edit(&d)
	}
	text, _ := json.Marshal(d)
	return string(text)
}

// deploy deploys mnist or fails the test.
func (r *rig) deploy(t testing.TB, edit func(d *types.FunctionDeployment)) {
	t.Helper()
	if w := r.do("POST", "/system/functions", deployment(edit)); w.Code != 202 {
		t.Fatalf("deploying: %d %s", w.Code, w.Body)
	}
}

// wantSentence fails unless w is our own error with a status and all words.
func wantSentence(t *testing.T, w *httptest.ResponseRecorder, status int, words ...string) {
	t.Helper()
	text := w.Body.String()
	if w.Code != status || w.Header().Get("X-OpenFaaS-Internal") != "provider" || !strings.HasSuffix(text, "\n") ||
		strings.Count(text, "\n") != 1 || len(text) < 10 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("answer %d %q %v, want %d and one sentence", w.Code, text, w.Header(), status)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("answer %q does not say %q", text, word)
		}
	}
}

// retryError is what a dispatcher answers when it cannot take a request.
type retryError struct {
	status int
	after  time.Duration
}

func (e retryError) Error() string             { return "the deadline cannot be met" }
func (e retryError) HTTPStatus() int           { return e.status }
func (e retryError) RetryAfter() time.Duration { return e.after }

var credentials = &auth.BasicAuthCredentials{User: "admin", Password: "secret"}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
