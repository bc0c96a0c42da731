package objects

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/objects"
)

// controller runs no functions and records its calls. Functions answer with their image.
type controller struct {
	mu      sync.Mutex
	runs    map[string]*provider.Function
	deploys int
	scaled  map[string]uint64
	refuse  map[string]error
	status  map[string]provider.Status
	problem map[string]string
	// brings is what images bring along, by image; hidden are those that cannot be read.
	brings map[string]map[string]string
	hidden map[string]error
}

type answer string

func (a answer) Invoke(context.Context, *frame.Request) (*frame.Response, error) {
	return &frame.Response{Status: 200, Header: http.Header{}, Body: []byte(a)}, nil
}

func (c *controller) Deploy(_ context.Context, f *provider.Function) (provider.Dispatcher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuse[f.Deployment.Image]; err != nil {
		return nil, err
	}
	c.deploys++
	c.runs[f.Name] = f
	return answer(f.Deployment.Image), nil
}

func (c *controller) Remove(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, name)
	return nil
}

func (c *controller) Scale(name string, n uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaled[name] = n
	return nil
}

func (c *controller) Restoring(func(string) bool) {}

func (c *controller) Status(name string) (provider.Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.runs[name]
	return c.status[name], ok
}

// shows sets the status and the problem of a function.
func (c *controller) shows(name string, s provider.Status, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status[name], c.problem[name] = s, problem
}

func (c *controller) why(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem[name]
}

// brought implements [provider.Defaults].
func (c *controller) brought(_ context.Context, d types.FunctionDeployment) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brings[d.Image], c.hidden[d.Image]
}

// running returns the running function of a name, nil if there is none.
func (c *controller) running(name string) *provider.Function {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[name]
}

func (c *controller) revision(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.runs[name]; f != nil {
		return f.Revision
	}
	return 0
}

func (c *controller) counted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deploys
}

// replica is one of the provider's replicas.
type replica struct {
	*provider.Server
	*controller
	objects *objects.Objects
	leading atomic.Bool
	// asked counts requests to the API server but for watches; writes those that
	// change something.
	asked, writes atomic.Int64
	// unanswered counts the tries of informers that found no API server.
	unanswered atomic.Int64
}

// start starts a replica until the test ends. The edits run before it knows any function.
func start(t *testing.T, leading bool, edits ...func(*controller)) *replica {
	t.Helper()
	r := &replica{controller: &controller{runs: map[string]*provider.Function{}, scaled: map[string]uint64{}, refuse: map[string]error{},
		status: map[string]provider.Status{}, problem: map[string]string{}, brings: map[string]map[string]string{}, hidden: map[string]error{}}}
	for _, edit := range edits {
		edit(r.controller)
	}
	r.leading.Store(leading)
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &trier{next, r} })
	config.Wrap(client.RetryTransport)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, r} })
	client := clientOf(t, config)
	ctx, cancel := context.WithCancel(context.Background())
	opening, stop := context.WithTimeout(ctx, patience)
	defer stop()
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	var err error
	if r.objects, err = objects.Open(ctx, opening, objects.Options{Config: config, Client: client, Logger: log}); err != nil {
		cancel()
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	r.Server = provider.New(provider.Options{Store: r.objects, Controller: r.controller, Metrics: metrics.New(registry), Gatherer: registry,
		Secrets: objects.NewSecretStore(client), Defaults: r.brought, Hosts: []string{"example.com"}, Logger: log})
	if err := r.Restore(ctx); err != nil {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- r.objects.Watch(ctx, objects.Watching{Target: r.Server, Leading: r.leading.Load, Status: r.controller.Status, Problem: r.why, Defaults: r.brought, Recount: recount(client)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.objects.Close()
	})
	return r
}

// counter counts the requests to the API server.
type counter struct {
	next http.RoundTripper
	of   *replica
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if !r.URL.Query().Has("watch") {
		c.of.asked.Add(1)
	}
	if r.Method != http.MethodGet {
		c.of.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

// trier counts the tries of informers, which retry.
type trier struct {
	next http.RoundTripper
	of   *replica
}

func (c *trier) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if query := r.URL.Query(); err != nil && (query.Has("watch") || query.Has("resourceVersion")) {
		c.of.unanswered.Add(1)
	}
	return answer, err
}

// do sends one request to a replica.
func (r *replica) do(method, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w
}

// must is do for a request that must be answered with a status.
func (r *replica) must(t *testing.T, status int, method, target, body string) string {
	t.Helper()
	w := r.do(method, target, body)
	if w.Code != status {
		t.Fatalf("%s %s: %d %s, not %d", method, target, w.Code, w.Body, status)
	}
	return w.Body.String()
}

// invoked waits until a function answers with an image.
func (r *replica) invoked(t *testing.T, name, image string) {
	t.Helper()
	eventually(t, func() string {
		if w := r.do("POST", "/function/"+name, "x"); w.Code != 200 || w.Body.String() != image {
			return name + " is answered by " + w.Body.String()
		}
		return ""
	})
}

// describes compares a function's problem, as faas-cli describe shows it. It returns "" if
// the problem begins with a text and has the other texts; otherwise it returns what
// differs. "" stands for no problem.
func (r *replica) describes(t *testing.T, name, begins string, has ...string) string {
	t.Helper()
	var s types.FunctionStatus
	if err := json.Unmarshal([]byte(r.must(t, 200, "GET", "/system/function/"+name, "")), &s); err != nil {
		t.Fatal(err)
	}
	problem := ""
	if s.Annotations != nil {
		problem = (*s.Annotations)[annotation.InferProblem]
	}
	wrong := !strings.HasPrefix(problem, begins) || begins == "" && problem != ""
	for _, part := range has {
		wrong = wrong || !strings.Contains(problem, part)
	}
	if wrong {
		return name + " is described with the problem " + strconv.Quote(problem)
	}
	return ""
}

// absent waits until there is no function of a name.
func (r *replica) absent(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() string {
		if w := r.do("POST", "/function/"+name, "x"); w.Code != 404 {
			return name + " answers " + w.Body.String()
		}
		return ""
	})
}

// deployment returns the deployment of an inference function as JSON, edited.
func deployment(name, image string, edit func(d *types.FunctionDeployment)) string {
	d := types.FunctionDeployment{Service: name, Image: image, Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms"}}
	if edit != nil {
		edit(&d)
	}
	text, _ := json.Marshal(d)
	return string(text)
}
