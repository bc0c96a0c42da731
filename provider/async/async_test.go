package async

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/stan.go"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

func TestMain(m *testing.M) {
	if run, ok := children[childRole()]; ok {
		run()
		return
	}
	flag.Parse()
	// Parallel tests mostly wait, whatever the machine's cores.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// invokerFunc is a function in memory.
type invokerFunc func(ctx context.Context, name string, r *frame.Request) (*frame.Response, error)

func (f invokerFunc) Invoke(ctx context.Context, name string, r *frame.Request) (*frame.Response, error) {
	return f(ctx, name, r)
}

// respond is a response with a body.
func respond(status int, body string) *frame.Response {
	return &frame.Response{Status: status, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(body)}
}

// deployed are functions in memory.
type deployed struct {
	mu sync.Mutex
	by map[string]map[string]string
}

func (d *deployed) Annotations(name string) (map[string]string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.by[name]
	return a, ok
}

func (d *deployed) set(name string, annotations map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by[name] = annotations
}

func (d *deployed) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.by, name)
}

// statusError is an error with an HTTP status.
type statusError int

func (e statusError) Error() string   { return fmt.Sprintf("status %d", int(e)) }
func (e statusError) HTTPStatus() int { return int(e) }

// counts how often each body was executed.
type counts struct {
	mu sync.Mutex
	by map[string]int
}

func (c *counts) add(body string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[body]++
	return c.by[body]
}

func (c *counts) different() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.by)
}

// rig is a queue with functions in memory.
type rig struct {
	*Queue
	functions *deployed
	registry  *prometheus.Registry
}

// options returns the options of a test, after edit.
func options(t testing.TB, invoke invokerFunc, edit func(o *Options)) Options {
	o := Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Invoker: invoke,
		Functions: &deployed{by: map[string]map[string]string{"echo.openfaas-fn": nil, "slow.openfaas-fn": nil}},
		Logger:    zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel),
	}
	if edit != nil {
		edit(&o)
	}
	return o
}

// start opens and runs a queue until the test ends.
func start(t testing.TB, invoke invokerFunc, edit func(o *Options)) *rig {
	t.Helper()
	o := options(t, invoke, edit)
	r := &rig{registry: prometheus.NewPedanticRegistry()}
	if o.Registerer == nil {
		o.Registerer = r.registry
	}
	r.functions, _ = o.Functions.(*deployed)
	q, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.Queue = q
	t.Cleanup(r.stop)
	if err := q.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r.Close(ctx)
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// letters waits for n dead letters.
func (r *rig) letters(t testing.TB, n int) []DeadLetter {
	t.Helper()
	var out []DeadLetter
	until(t, fmt.Sprintf("%d dead letters", n), func() bool {
		w := r.do("GET", "/system/async/dead", "")
		if w.Code == http.StatusServiceUnavailable { // The queue writes large letters.
			return false
		}
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		return len(out) == n
	})
	return out
}

// do sends a request to System or Accept as a provider would.
func (r *rig) do(method, target, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	var err error
	if rest, ok := strings.CutPrefix(req.URL.EscapedPath(), "/async-function/"); ok {
		name, path, _ := strings.Cut(rest, "/")
		err = r.Accept(w, req, name, "/"+path)
	} else {
		err = r.System(w, req)
	}
	if err != nil {
		status := 500
		if known, ok := err.(*web.Error); ok {
			status = known.HTTPStatus()
			if known.RetryAfter() > 0 {
				w.Header().Set("Retry-After", "1")
			}
		}
		http.Error(w, err.Error(), status)
	}
	return w
}

// gateway returns a client like the stock gateway's, with other timeouts. patience is how long a
// message may take to be acknowledged.
func gateway(t testing.TB, url string, patience time.Duration, options ...stan.Option) stan.Conn {
	t.Helper()
	options = append([]stan.Option{
		stan.NatsURL(url), stan.PubAckWait(patience), stan.ConnectWait(time.Minute),
		stan.NatsOptions(nats.ReconnectWait(50*time.Millisecond), nats.Timeout(time.Minute)),
		stan.SetConnectionLostHandler(func(_ stan.Conn, err error) { t.Errorf("the gateway has lost its connection: %v", err) }),
	}, options...)
	c, err := stan.Connect("faas-cluster", "faas-publisher-test", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// request is a message as the gateway publishes it.
func request(function, body string) []byte {
	data, err := json.Marshal(types.QueueRequest{Function: function, Body: []byte(body), Method: "POST", Path: "/p", QueryString: "a=b",
		Header: http.Header{"X-Call-Id": {"call-" + body}, "X-Start-Time": {"1"}, "Content-Type": {"text/plain"}}, Host: "gateway:8080"})
	if err != nil {
		panic(err)
	}
	return data
}

// calling is a message as the gateway publishes it for a request with a header X-Callback-Url.
func calling(callback string) []byte {
	u, err := url.Parse(callback)
	if err != nil {
		panic(err)
	}
	data, err := json.Marshal(types.QueueRequest{Function: "echo", Method: "POST", CallbackURL: u})
	if err != nil {
		panic(err)
	}
	return data
}

func TestThroughTheGateway(t *testing.T) {
	got := make(chan *frame.Request, 1)
	r := start(t, func(_ context.Context, name string, r *frame.Request) (*frame.Response, error) {
		if name != "echo.openfaas-fn" {
			t.Errorf("invoked %s", name)
		}
		got <- r
		return respond(200, "done"), nil
	}, nil)
	c := gateway(t, "nats://"+r.Address(), time.Minute)
	if err := c.Publish("faas-request", request("echo", "hello")); err != nil {
		t.Fatal(err)
	}
	f := <-got
	if f.Method != "POST" || f.Path != "/p" || f.Query != "a=b" || string(f.Body) != "hello" || f.Header.Get("X-Call-Id") != "call-hello" || f.Header.Get("X-Forwarded-Host") != "gateway:8080" {
		t.Errorf("executed as %+v", f)
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued == 0 && s.InFlight == 0 })
	for _, bad := range []struct {
		channel string
		data    []byte
		want    string
	}{
		{"faas-request", []byte("{"), "not a queued request in JSON"},
		{"faas-request", []byte("null"), "Function is empty"},
		{"faas-request", []byte("{}"), "Function is empty"},
		{"faas-request", request("absent", "x"), `no function "absent"`},
		{"faas-request", request("Not A Name", "x"), "Function is"},
		{"other", request("echo", "x"), "channel"},
		{"faas-request", calling("ftp://x/y"), "must begin with http:// or https://"},
		{"faas-request", calling("/rel"), "must begin with http:// or https://"},
		{"faas-request", calling("not a url"), "must begin with http:// or https://"},
		{"faas-request", calling("http://"), "must name a host"},
		{"faas-request", calling("http://user:pw@127.0.0.1/x"), "must not hold a user and password"},
	} {
		if err := c.Publish(bad.channel, bad.data); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("publishing %s: error %v does not say %q", bad.data, err, bad.want)
		}
	}
	if _, err := c.Subscribe("faas-request", func(*stan.Msg) {}); err == nil || !strings.Contains(err.Error(), "no subscriptions") {
		t.Errorf("subscribing: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestManyAtATime(t *testing.T) {
	var done counts
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, nil)
	c := gateway(t, "nats://"+r.Address(), time.Minute)
	const n = 20000
	type ack struct {
		i   int
		err error
	}
	acks := make(chan ack, n)
	started := time.Now()
	publish := func(i int) {
		if _, err := c.PublishAsync("faas-request", request("echo", fmt.Sprint(i)), func(_ string, err error) { acks <- ack{i, err} }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		publish(i)
	}
	// On a busy machine the queue may be so slow that it says so; then it is asked again.
	refused := 0
	for accepted := 0; accepted < n; {
		a := <-acks
		switch {
		case a.err == nil:
			accepted++
		case !strings.Contains(a.err.Error(), "does not answer in time") || time.Since(started) > 2*time.Minute:
			t.Fatal(a.err)
		default:
			refused++
			publish(a.i)
		}
	}
	t.Logf("accepted %.0f/s, %d only when asked again", n/time.Since(started).Seconds(), refused)
	until(t, "all executed", func() bool { return done.different() == n })
	t.Logf("executed %.0f/s", n/time.Since(started).Seconds())
}
