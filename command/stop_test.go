package command

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/store"
)

// resident is a platform with one function, whose requests take until release is closed.
type resident struct {
	dir     string
	release chan struct{}
	begun   chan struct{}
	// decisions are those of the provider.
	decisions *decisions.Log
}

func (r *resident) Open(_ context.Context, b Base) (Parts, error) {
	r.decisions = b.Decisions
	kept, err := store.Open(filepath.Join(r.dir, "faas-infer.db"))
	if err != nil {
		return Parts{}, err
	}
	c := &residentController{r}
	d := types.FunctionDeployment{Service: "slow", Namespace: "openfaas-fn", Image: "slow"}
	return Parts{Store: kept, Controller: c, Close: kept.Close}, kept.PutFunction(store.Function{Deployment: d, Revision: 1})
}

type residentController struct{ *resident }

func (c *residentController) Deploy(context.Context, *provider.Function) (provider.Dispatcher, error) {
	return c, nil
}
func (*residentController) Restoring(func(string) bool)           {}
func (*residentController) Remove(context.Context, string) error  { return nil }
func (*residentController) Scale(string, uint64) error            { return nil }
func (*residentController) Status(string) (provider.Status, bool) { return provider.Status{}, true }
func (*residentController) Run(ctx context.Context)               { <-ctx.Done() }
func (*residentController) Close(context.Context) error           { return nil }
func (*residentController) Describe(string) (keeper.Description, bool) {
	return keeper.Description{}, true
}

func (c *residentController) Invoke(ctx context.Context, _ *frame.Request) (*frame.Response, error) {
	c.begun <- struct{}{}
	select {
	case <-c.release:
		return &frame.Response{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"service": "taken", "image": "slow"}`)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reside starts a provider on a resident platform.
func reside(t *testing.T, drain time.Duration) (*runningProvider, *resident, string) {
	t.Helper()
	return resideIn(t, t.TempDir(), drain)
}

// resideIn is [reside] with the state of an earlier run.
func resideIn(t *testing.T, dir string, drain time.Duration) (*runningProvider, *resident, string) {
	t.Helper()
	r := &resident{dir: dir, release: make(chan struct{}), begun: make(chan struct{}, 10)}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := &ProviderFlags{}
	f.register(flags)
	f.listen, f.state, f.drain, f.nats.listen, f.logLevel = "127.0.0.1:0", r.dir, drain, "127.0.0.1:0", "error"
	s, err := f.start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s, r, "http://" + s.address()
}

// ask asks a provider and returns the status code, 0 if there is no answer.
func ask(ctx context.Context, method, url string) int {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("x"))
	if err != nil {
		return 0
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// While requests of clients and of the queue are in flight, a provider that stops says so
// and takes no more. Both end at the same time.
func TestStopSaysSoAtOnce(t *testing.T) {
	s, r, url := reside(t, time.Minute)
	if code := ask(t.Context(), http.MethodPost, url+"/async-function/slow"); code != http.StatusAccepted {
		t.Fatal(code)
	}
	<-r.begun
	answered := make(chan int)
	go func() { answered <- ask(t.Context(), http.MethodPost, url+"/function/slow") }()
	<-r.begun
	stopped := make(chan error)
	go func() { stopped <- s.stop(func() {}) }()
	for began := time.Now(); ask(t.Context(), http.MethodGet, url+"/healthz") != http.StatusServiceUnavailable; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("a provider that stops says that it is well")
		}
	}
	if code := ask(t.Context(), http.MethodPost, url+"/async-function/slow"); code != http.StatusServiceUnavailable {
		t.Errorf("it takes an asynchronous request: %d", code)
	}
	close(r.release)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("the request in flight got %d", code)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A provider beside others serves on while it says that it stops, and sends its clients away with
// their next answers. It does so for two seconds. A busy machine may not get a request through in
// that time, but not each time.
func TestStopLetsClientsGo(t *testing.T) {
	for try := 1; !letsClientsGo(t); try++ {
		if try == 5 {
			t.Fatal("no client is served while the provider stops")
		}
	}
}

// letsClientsGo reports whether a client is served while a provider stops. If so, it also checks the
// answers.
func letsClientsGo(t *testing.T) bool {
	t.Helper()
	const drain = 8 * time.Second
	s, r, url := reside(t, drain)
	s.parts.Several = true
	close(r.release)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	post := func() (*http.Response, error) {
		response, err := (&http.Client{Transport: transport}).Post(url+"/function/slow", "", strings.NewReader("x"))
		if err == nil {
			response.Body.Close()
		}
		return response, err
	}
	if got, err := post(); err != nil || got.StatusCode != http.StatusOK || got.Close {
		t.Fatalf("%+v, %v", got, err)
	}
	stopped := make(chan error, 1)
	stops := time.Now()
	go func() { stopped <- s.stop(func() {}) }()
	for ask(t.Context(), http.MethodGet, url+"/healthz") != http.StatusServiceUnavailable && time.Since(stops) < drain {
		time.Sleep(5 * time.Millisecond)
	}
	got, err := post()
	late := time.Since(stops) > min(leaveTime, drain/4)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	switch {
	case late && (err != nil || got.StatusCode != http.StatusOK):
		return false
	case err != nil || got.StatusCode != http.StatusOK || !got.Close:
		t.Errorf("on a connection from before: %+v, %v", got, err)
	}
	return true
}

// Requests of clients and of the queue that never end delay stopping once, not twice. On a busy
// machine one attempt may take as long as if they did so twice.
func TestStopDrainsAtOnce(t *testing.T) {
	const drain = 3 * time.Second
	// The client's request is aborted when its connection is closed.
	const twice = 2*drain + closeTimeout
	took := twice
	for try := 0; try < 3 && took > twice-time.Second; try++ {
		took = stopWithEndless(t, drain)
	}
	if took < drain || took > twice-time.Second {
		t.Errorf("stopping took %v, and requests may take %v", took, drain)
	}
}

// stopWithEndless stops a provider that has two requests that never end, and returns how long that took.
func stopWithEndless(t *testing.T, drain time.Duration) time.Duration {
	t.Helper()
	s, r, url := reside(t, drain)
	if code := ask(t.Context(), http.MethodPost, url+"/async-function/slow"); code != http.StatusAccepted {
		t.Fatal(code)
	}
	<-r.begun
	var client sync.WaitGroup
	defer client.Wait()
	client.Go(func() { ask(t.Context(), http.MethodPost, url+"/function/slow") })
	<-r.begun
	began := time.Now()
	if err := s.stop(func() {}); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// A pod has the time for all stages of stopping, and its --drain is enough for any request
// that the gateway waits for.
func TestPodsHaveTheTimeToStop(t *testing.T) {
	duration := func(file, pattern string) time.Duration {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../yaml", file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		text = found[1]
		if text[len(text)-1] <= '9' {
			text = append(text, 's')
		}
		d, err := time.ParseDuration(string(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, files := range []struct{ drainIn, drain, graceIn, pod, gateway string }{
		{"provider.yaml", `- --drain=(\w+)`, "provider.yaml", "provider.yaml", "options/gateway/gateway.yaml"},
		{"chart/faas-infer/values.yaml", `(?m)^drain: (\w+)`, "chart/faas-infer/values.yaml", "chart/faas-infer/templates/provider.yaml", "chart/faas-infer/templates/gateway.yaml"},
	} {
		drain := duration(files.drainIn, files.drain)
		wait := duration(files.pod, `preStop: \{sleep: \{seconds: (\d+)\}\}`)
		if have, need := duration(files.graceIn, `(?m)^ *terminationGracePeriodSeconds: (\d+)$`), wait+drain+stopping; have < need {
			t.Errorf("%s gives a pod %v to stop, which takes up to %v", files.graceIn, have, need)
		}
		if longest := duration(files.gateway, `upstream_timeout, value: (\w+)`); drain < longest {
			t.Errorf("%s: requests in flight may take %v, and the gateway waits %v for them", files.drainIn, drain, longest)
		}
	}
}
