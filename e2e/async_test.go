package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// gateway starts the stock gateway, without passwords, in front of a provider and a NATS
// server, until the test ends. Unlike that of "faas-infer up" it outlives the provider.
func (p *place) gateway(t *testing.T, provider, nats string) {
	t.Helper()
	p.gatewayWith(t, provider, nats, "basic_auth=false")
}

// gatewayWith is gateway with further settings.
func (p *place) gatewayWith(t *testing.T, provider, nats string, settings ...string) {
	t.Helper()
	p.awaitGatewayPorts(t)
	log, err := os.CreateTemp(p.dir, "gateway-log-*")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	host, port, _ := strings.Cut(provider, ":")
	natsHost, natsPort, _ := strings.Cut(nats, ":")
	c := exec.Command(suite.gateway)
	c.Dir, c.Stdout, c.Stderr = filepath.Dir(suite.gateway), log, log
	c.Env = append(os.Environ(), "functions_provider_url=http://"+provider+"/", "direct_functions=false", "scale_from_zero=false",
		"faas_prometheus_host="+host, "faas_prometheus_port="+port, "function_namespace="+defaultNamespace,
		"read_timeout=1m", "write_timeout=1m", "upstream_timeout=1m", "faas_nats_address="+natsHost, "faas_nats_port="+natsPort)
	c.Env = append(c.Env, settings...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.network.start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // Killed.
		if t.Failed() {
			text := readAll(log.Name())
			t.Logf("the gateway's log ends with\n%s", text[max(0, len(text)-4000):])
		}
	})
	probe := p.network.client(t)
	await(t, patience, "the gateway", func() bool {
		a, err := try(probe, http.MethodGet, gatewayURL+"/healthz", nil)
		return err == nil && a.status == http.StatusOK
	})
}

// receiver receives callbacks.
type receiver struct {
	*httptest.Server
	mu sync.Mutex
	// times counts callbacks by call id, last has the last of each.
	times map[string]int
	last  map[string]callback
}

type callback struct {
	header http.Header
	body   string
}

func (p *place) newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := p.network.listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{times: map[string]int{}, last: map[string]callback{}}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // The provider was killed in the middle; it calls again.
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		id := request.Header.Get("X-Call-Id")
		r.times[id]++
		r.last[id] = callback{request.Header.Clone(), string(body)}
	}))
	if err := r.Listener.Close(); err != nil {
		t.Error(err)
	}
	r.Listener = l
	r.Start()
	t.Cleanup(r.Close)
	return r
}

// called returns the number of calls that were called back.
func (r *receiver) called() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.times)
}

func (r *receiver) of(id string) (callback, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[id], r.times[id]
}

// Asynchronous requests through the stock gateway and without it are accepted at once,
// executed, and called back with the function's answer.
func TestAsyncCallbacks(t *testing.T) {
	p := gatewayPlace(t)
	s := p.upBehind(t)
	deploy(t, s.faas, ordinary("echo", "cat"))
	deploy(t, s.faas, ordinary("failing", "false"))
	deploy(t, s.faas, ordinary("environment", "env"))
	r := p.newReceiver(t)
	for _, w := range s.ways(t) {
		t.Run(w.name, func(t *testing.T) {
			send := func(id, function, body string) {
				t.Helper()
				a := do(t, w.http, http.MethodPost, w.base+"/async-function/"+function, []byte(body), "X-Callback-Url", r.URL+"/done", "X-Call-Id", id, "X-Own", "header")
				if a.status != http.StatusAccepted {
					t.Errorf("%s: %d %s", function, a.status, a.body)
				}
				// The gateway tells only the call ids that it has made.
				if got := a.header.Get("X-Call-Id"); got != id && !w.throughGateway() {
					t.Errorf("%s: call %q became %q", function, id, got)
				}
			}
			echo, env, model := "echo-"+w.name, "env-"+w.name, "model-"+w.name
			send(echo, "echo", "the body")
			send(env, "environment."+defaultNamespace+"/a/path?testing=1", "")
			send(model, "identity", `{"instances": [[1, 2, 3]]}`)
			s.await(t, patience, "callbacks", func() bool {
				for _, id := range []string{echo, env, model} {
					if _, n := r.of(id); n == 0 {
						return false
					}
				}
				return true
			})
			if c, n := r.of(echo); n != 1 || c.body != "the body" || c.header.Get("X-Function-Status") != "200" || !strings.HasPrefix(c.header.Get("X-Function-Name"), "echo") {
				t.Errorf("%d callbacks: %+v", n, c)
			}
			if c, _ := r.of(env); !strings.Contains(c.body, "Http_Path=/a/path\n") || !strings.Contains(c.body, "Http_Query=testing=1\n") || !strings.Contains(c.body, "Http_X_Own=header\n") {
				t.Errorf("the process saw %s", c.body)
			}
			if c, _ := r.of(model); !strings.Contains(c.body, "predictions") {
				t.Errorf("the model's callback is %+v", c)
			}
			if w.throughGateway() {
				return // It tells no ID.
			}
			a := do(t, w.http, http.MethodPost, w.base+"/async-function/echo", []byte("kept"), "X-Keep-Result", "10m", "X-Infer-Deadline", "10s")
			at := w.base + a.header.Get("Location")
			if !strings.HasPrefix(a.header.Get("Location"), "/async-function/") || a.header.Get("X-Call-Id") == "" {
				t.Errorf("%d %v", a.status, a.header)
			}
			s.await(t, patience, "a kept result", func() bool { return do(t, w.http, http.MethodGet, at+"/result", nil).status == http.StatusOK })
			if kept := do(t, w.http, http.MethodGet, at+"/result", nil); string(kept.body) != "kept" || kept.header.Get("X-Function-Status") != "200" {
				t.Errorf("%s %v", kept.body, kept.header)
			}
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				if p := do(t, w.http, method, at, nil); p.status != http.StatusOK || !strings.Contains(string(p.body), `"state":"done"`) {
					t.Errorf("%s: %d %s", method, p.status, p.body)
				}
			}
		})
	}
	s.stop(t)
}

// The provider is killed twice while it has two thousand asynchronous requests to a model
// and an ordinary function. Each accepted request is called back.
func TestAsyncOutlastsKills(t *testing.T) {
	const each = 1000
	p := gatewayPlace(t)
	p.identity(t)
	address, nats := freeAddress(t), freeAddress(t)
	d := p.providerAt(t, suite.binary, address, "--nats-listen", nats)
	d.deploy(t, scaled(function("model", "identity:latest", "2s"), "1", "2"))
	d.deploy(t, scaled(ordinary("echo", "cat"), "2", "2"))
	d.awaitReady(t, "model", 1)
	d.awaitReady(t, "echo", 2)
	groups := p.cgroups()
	p.gateway(t, address, nats)
	r := p.newReceiver(t)

	var sent sync.WaitGroup
	t.Cleanup(sent.Wait)
	c := p.network.client(t)
	for worker := range 16 {
		sent.Go(func() {
			for i := worker; i < each; i += 16 {
				accept(t, c, r.URL, "echo", fmt.Sprintf("echo-%d", i), fmt.Appendf(nil, "message %d", i))
				accept(t, c, r.URL, "model", fmt.Sprintf("model-%d", i), fmt.Appendf(nil, `{"instances": [[%d, 0.5]]}`, i))
			}
		})
	}
	for _, n := range []int{each / 4, each} {
		d.await(t, patience, fmt.Sprintf("%d callbacks", n), func() bool { return r.called() >= n })
		d.kill(t)
		d = p.providerAt(t, suite.binary, address, "--nats-listen", nats)
	}
	sent.Wait()
	d.await(t, 2*patience, "all callbacks", func() bool { return r.called() >= 2*each })
	again := 0
	for i := range each {
		got, n := r.of(fmt.Sprintf("echo-%d", i))
		if n == 0 || got.body != fmt.Sprintf("message %d", i) {
			t.Errorf("message %d to echo: %d callbacks, %q", i, n, got.body)
		}
		again += n - 1
		got, n = r.of(fmt.Sprintf("model-%d", i))
		if n == 0 || !strings.Contains(got.body, fmt.Sprintf("%d", i)) {
			t.Errorf("message %d to the model: %d callbacks, %q", i, n, got.body)
		}
		again += n - 1
	}
	t.Logf("%d messages were called back, %d of the callbacks came more than once", 2*each, again)
	d.stop(t)
	gone(t, groups)
}

// accept sends an asynchronous request until it is accepted. While the provider is dead,
// the gateway refuses it.
func accept(t *testing.T, c *http.Client, callbacks, function, id string, body []byte) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		a, err := try(c, http.MethodPost, gatewayURL+"/async-function/"+function, body, "X-Callback-Url", callbacks, "X-Call-Id", id)
		if err == nil && a.status == http.StatusAccepted {
			return
		}
		if t.Context().Err() != nil {
			return // The test has failed and ended.
		}
		if time.Now().After(end) {
			t.Errorf("%s was not accepted: %d %s, %v", id, a.status, a.body, err)
			return
		}
	}
}
