package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// beforeVar is the environment variable with the program of an earlier release, from which and to which
// TestUpgradeAndRollback goes. By default it is this source with another version.
const beforeVar = "FAAS_INFER_E2E_BEFORE"

// released builds the program as that of a release.
func released(t *testing.T, version string) string {
	t.Helper()
	if onCluster != nil {
		return onCluster.Provider
	}
	flag := "-X github.com/faas-infer/faas-infer/command/report.Release=" + version
	at, err := build("faas-infer-"+version, "..", "-ldflags", flag)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// steady sends requests at a constant rate, each until it is answered, as a client with retries does: a connection
// that is refused or breaks, 502 and 503 are tried again.
type steady struct {
	client *http.Client
	// sent counts requests, retried those with more than one attempt. lost are those without their own answer.
	sent, retried atomic.Int64
	mu            sync.Mutex
	lost          []string
}

// run sends requests to the functions in turn until ctx ends, and returns after the last is answered.
func (s *steady) run(ctx context.Context, every time.Duration, functions map[string]func(i int) attempt) {
	var flying sync.WaitGroup
	defer flying.Wait()
	tick := time.Tick(every)
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		for name, of := range functions {
			s.sent.Add(1)
			flying.Go(func() { s.send(name, i, of(i)) })
		}
	}
}

// attempt is a request and what its answer must end with.
type attempt struct {
	url    string
	body   []byte
	want   []byte
	header []string
}

// send sends one request until it is answered.
func (s *steady) send(name string, i int, a attempt) {
	for n, end := 1, time.Now().Add(patience); ; n++ {
		got, err := try(s.client, http.MethodPost, a.url, a.body, a.header...)
		if err == nil && got.status == http.StatusOK && bytes.HasSuffix([]byte(got.body), a.want) {
			if n > 1 {
				s.retried.Add(1)
			}
			return
		}
		again := err != nil || got.status == http.StatusBadGateway || got.status == http.StatusServiceUnavailable
		if !again || time.Now().After(end) {
			s.mu.Lock()
			s.lost = append(s.lost, fmt.Sprintf("%s %d: %d %.200q, %v", name, i, got.status, got.body, err))
			s.mu.Unlock()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// release returns the version that the provider tells.
func (d *daemon) release() string {
	a, err := try(d.own, http.MethodGet, d.url+"/system/info", nil)
	if err != nil {
		return err.Error()
	}
	return a.body
}

// The provider is replaced by another version and back, as the Debian package does it: the old one is stopped in
// order, then the new one starts with the same state. Functions, secrets and namespaces stay. Under load every
// request and every asynchronous request is answered, if clients try again while the address has no provider.
func TestUpgradeAndRollback(t *testing.T) {
	providerTests.takeHere(t)
	const first, second = "v0.1.0", "v0.2.0"
	programs := map[string]string{first: os.Getenv(beforeVar), second: released(t, second)}
	if programs[first] == "" {
		programs[first] = released(t, first)
	}
	p := newPlace(t)
	p.identity(t)
	address := freeAddress(t)
	d := p.providerAt(t, programs[first], address)
	d.deploy(t, scaled(function("model", "identity:latest", "10s"), "1", "2"))
	d.deploy(t, scaled(ordinary("echo", "cat"), "1", "2"))
	for route, body := range map[string]string{
		"/system/namespace/dev": `{"name": "dev"}`,
		"/system/secrets":       `{"name": "key", "value": "secret"}`,
	} {
		if a := do(t, client(t), http.MethodPost, d.url+route, []byte(body)); a.status/100 != 2 {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
	d.awaitReady(t, "model", 1)
	d.awaitReady(t, "echo", 1)
	r := p.newReceiver(t)

	ctx, end := context.WithCancel(t.Context())
	s := &steady{client: p.network.client(t)}
	s.client.Timeout = 0 // Each attempt lasts until its connection breaks.
	var loading sync.WaitGroup
	t.Cleanup(func() { end(); loading.Wait() })
	loading.Go(func() {
		s.run(ctx, 25*time.Millisecond, map[string]func(int) attempt{
			"model": func(i int) attempt {
				body, length := identityBody(i)
				return attempt{d.function("model"), body, payload(i), []string{load.HeaderLength, strconv.Itoa(length)}}
			},
			"echo": func(i int) attempt {
				body := fmt.Appendf(nil, "request %d", i)
				return attempt{d.function("echo"), body, body, nil}
			},
		})
	})
	later := 0
	for _, version := range []string{second, first} {
		before := s.sent.Load()
		d.await(t, patience, "load", func() bool { return s.sent.Load() > before+100 })
		for range 20 {
			body := fmt.Sprintf("message %d", later)
			a := do(t, p.network.client(t), http.MethodPost, d.url+"/async-function/echo", []byte(body),
				"X-Callback-Url", r.URL, "X-Call-Id", body)
			if a.status != http.StatusAccepted {
				t.Fatalf("%s: %d %s", body, a.status, a.body)
			}
			later++
		}
		stopped := time.Now()
		d.signal(t, syscall.SIGTERM)
		if code := d.exit(t, patience); code != 0 {
			t.Errorf("exit code %d:\n%s", code, d.tail())
		}
		gap := time.Now()
		d = p.providerAt(t, programs[version], address)
		t.Logf("to %s: stopped in %v, serves %v later", version, gap.Sub(stopped), time.Since(gap))
		d.awaitReady(t, "model", 1)
		d.awaitReady(t, "echo", 1)
		if told := d.release(); os.Getenv(beforeVar) == "" && onCluster == nil && !strings.Contains(told, version) {
			t.Errorf("the provider is %s, not %s", told, version)
		}
		d.kept(t)
	}
	before := s.sent.Load()
	d.await(t, patience, "load", func() bool { return s.sent.Load() > before+100 })
	end()
	loading.Wait()
	d.await(t, patience, "callbacks", func() bool { return r.called() >= later })
	for i := range later {
		name := fmt.Sprintf("message %d", i)
		if c, n := r.of(name); n == 0 || c.body != name {
			t.Errorf("%s: %d callbacks, %q", name, n, c.body)
		}
	}
	t.Logf("%d requests, %d of them sent more than once, %d lost; %d asynchronous requests",
		s.sent.Load(), s.retried.Load(), len(s.lost), later)
	for _, lost := range s.lost[:min(5, len(s.lost))] {
		t.Errorf("lost: %s", lost)
	}
	d.stop(t)
}

// kept fails the test unless functions, namespace and secret are there.
func (d *daemon) kept(t *testing.T) {
	t.Helper()
	for route, want := range map[string]string{
		"/system/functions":  `"model"`,
		"/system/namespaces": `"dev"`,
		"/system/secrets":    `"key"`,
	} {
		d.await(t, patience, route, func() bool {
			a, err := try(d.own, http.MethodGet, d.url+route, nil)
			return err == nil && a.status == http.StatusOK && strings.Contains(a.body, want)
		})
	}
}
