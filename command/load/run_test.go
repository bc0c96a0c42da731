package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func run(t *testing.T, o Options) *Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// All requests that wait for a stalled server must count. None may be held back because
// earlier ones are unanswered, and latency counts from the intended time of sending.
func TestRunOmitsNothing(t *testing.T) {
	const requests = 100
	const gap = 4 * time.Millisecond
	var seen atomic.Int32
	gate := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		if seen.Add(1) == requests {
			close(gate) // only opens if every request is sent before any answer
		}
		<-gate
	})
	r := run(t, Options{
		Targets:  []Target{{Name: "stalls", URL: s.URL, Rate: 1 / gap.Seconds(), SLO: 10 * time.Millisecond}},
		Duration: requests * gap,
	}).Targets[0]
	if r.Good != requests || r.Requests != requests {
		t.Fatalf("%d good answers of %d, want %d", r.Good, r.Requests, requests)
	}
	// The gate opens after the last request is due, so request i waits for
	// at least (99-i)·gap; the median of that is 49·gap.
	if least := 49 * gap; r.Latency.P50 < least {
		t.Errorf("median latency %v, want at least %v", r.Latency.P50, least)
	}
	if least := 99 * gap; r.Latency.Max < least {
		t.Errorf("largest latency %v, want at least %v", r.Latency.Max, least)
	}
	if most := 3.0 / requests; r.WithinSLO > most {
		t.Errorf("%v within the SLO, want at most %v", r.WithinSLO, most)
	}
}

func TestRunCountsEveryOutcome(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "hang up":
			panic(http.ErrAbortHandler)
		case "busy":
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write(bytes.Repeat([]byte("busy "), 100))
		default:
			w.Write(body)
		}
	})
	bodies := [][]byte{[]byte("hello"), []byte("busy"), []byte("hang up"), []byte("spoilt")}
	r := run(t, Options{
		Targets: []Target{{
			Name: "mixed", URL: s.URL + "/function/x?y=1", Rate: 400, Arrivals: Poisson, SLO: time.Hour,
			Body: Cycle(bodies...),
			Verify: func(i int, body []byte) error {
				if want := bodies[i%len(bodies)]; string(body) != string(want) {
					return fmt.Errorf("got %q, want %q", body, want)
				}
				if i%len(bodies) == 3 {
					return errors.New("spoilt")
				}
				return nil
			},
		}},
		Duration: 250 * time.Millisecond, Seed: 3,
	}).Targets[0]
	if r.Good+r.Refused+r.Wrong+r.Failed+r.Dropped != r.Requests || r.Dropped != 0 {
		t.Errorf("outcomes do not add up: %+v", r)
	}
	share := func(k int) int { return (r.Requests + 3 - k) / 4 }
	if r.Good != share(0) || r.Refused != share(1) || r.Failed != share(2) || r.Wrong != share(3) {
		t.Errorf("of %d: good %d, refused %d, failed %d, wrong %d", r.Requests, r.Good, r.Refused, r.Failed, r.Wrong)
	}
	if r.Codes[200] != r.Good+r.Wrong || r.Codes[503] != r.Refused || len(r.Codes) != 2 {
		t.Errorf("codes %v", r.Codes)
	}
	if want := strings.Repeat("busy ", maxReason/5); r.Reasons[want] != r.Refused || len(r.Reasons) != 1 {
		t.Errorf("reasons %v", r.Reasons)
	}
	if r.FirstError == nil {
		t.Error("no example of an error")
	}
	if want := float64(r.Good) / float64(r.Requests); r.WithinSLO != want {
		t.Errorf("within SLO %v, want %v: only good answers count", r.WithinSLO, want)
	}
}

// A run ends once too many requests have missed their SLO, and leaves out those that were not due.
func TestRunEndsWithTooManyMissed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	observed := 0
	r := run(t, Options{
		Targets:  []Target{{Name: "refuses", URL: s.URL, Rate: 1000, SLO: time.Hour}},
		Duration: time.Hour, MinWithin: 1 - 1e-6, MaxInFlight: 1, Observe: func(Observed) { observed++ },
	}).Targets[0]
	if r.Requests <= 3 || r.Requests > 1_000_000 || r.Refused+r.Dropped != r.Requests || observed != r.Requests {
		t.Errorf("%d requests, %d refused, %d dropped, %d observed", r.Requests, r.Refused, r.Dropped, observed)
	}
}

// Observe gets the result of every request in the order of their times.
func TestRunTellsOfEachRequest(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	var seen []Observed
	result := run(t, Options{
		Targets:  []Target{{Name: "a", URL: s.URL, Rate: 100}, {Name: "b", URL: s.URL + "/refuse", Rate: 50, Arrivals: Poisson}},
		Duration: 200 * time.Millisecond, Observe: func(o Observed) { seen = append(seen, o) },
	})
	count := [2]int{}
	for i, o := range seen {
		if i > 0 && o.At < seen[i-1].At {
			t.Errorf("request %d at %v is after one at %v", i, o.At, seen[i-1].At)
		}
		if o.Good != (o.Target == 0) || o.Good && o.Latency <= 0 || o.At < 0 || o.At >= 200*time.Millisecond {
			t.Errorf("request %d: %+v", i, o)
		}
		if o.Index != count[o.Target] || !o.Sent || o.Lag < 0 || o.Lag > o.Latency || o.Status != map[int]int{0: 200, 1: 503}[o.Target] || o.Err != nil {
			t.Errorf("request %d: %+v", i, o)
		}
		count[o.Target]++
	}
	if age := time.Since(result.Began); age < 0 || age > time.Minute {
		t.Errorf("it began %v ago", age)
	}
	if count[0] != result.Targets[0].Requests || count[1] != result.Targets[1].Requests {
		t.Errorf("told of %v requests", count)
	}
}

func TestRunDropsAboveTheGuard(t *testing.T) {
	gate := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-gate })
	// All requests must be due before any is answered, on a machine that pauses, too.
	time.AfterFunc(2*time.Second, func() { close(gate) })
	r := run(t, Options{
		Targets:     []Target{{Name: "stuck", URL: s.URL, Rate: 200}},
		Duration:    100 * time.Millisecond,
		MaxInFlight: 5,
	}).Targets[0]
	if r.Requests != 20 || r.Dropped != 15 || r.Good != 5 {
		t.Errorf("of %d: %d dropped, %d good; want 20, 15, 5", r.Requests, r.Dropped, r.Good)
	}
	if r.WithinSLO != 0.25 {
		t.Errorf("within SLO %v, want 0.25: dropped requests are misses", r.WithinSLO)
	}
}

func TestRunTimesOut(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r := run(t, Options{
		Targets:  []Target{{Name: "silent", URL: s.URL, Rate: 100}},
		Duration: 50 * time.Millisecond,
		Timeout:  100 * time.Millisecond,
	}).Targets[0]
	if r.Failed != r.Requests || r.FirstError == nil {
		t.Errorf("%d of %d failed (%v), want all", r.Failed, r.Requests, r.FirstError)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := Run(ctx, Options{
		Targets:  []Target{{Name: "hour", URL: s.URL, Rate: 100}},
		Duration: time.Hour,
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was cancelled", err)
	}
}

// Until ends only the sending: the requests in flight get their answers, and the result is of those sent.
func TestRunSendsUntil(t *testing.T) {
	until, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := serve(t, func(http.ResponseWriter, *http.Request) { cancel() })
	o := Options{
		Targets:  []Target{{Name: "hour", URL: s.URL, Rate: 1}},
		Duration: time.Hour,
		Until:    until,
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Targets[0]; got.Requests == 0 || got.Requests > 60 || got.Good != got.Requests {
		t.Errorf("%d of %d requests were answered, want all that were sent", got.Good, got.Requests)
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, context.Canceled) {
		t.Errorf("nothing was sent, and the error is %v", err)
	}
}

// The generator's own lag is part of the latency, and the result reports it.
func TestLagIsCharged(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	target := Target{Name: "late", URL: s.URL}
	p, err := newPool(t.Context(), &target, 1, time.Minute, make(chan struct{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	p.start(job{intended: time.Now().Add(-50 * time.Millisecond)})
	p.finish()
	r := summarise(&target, p.samples, 1, time.Second)
	if r.Late != 1 || !r.Lagged() || r.Lag.Max < 50*time.Millisecond || r.Latency.Max < r.Lag.Max {
		t.Errorf("late %d, lag %v, latency %v", r.Late, r.Lag.Max, r.Latency.Max)
	}
}

// closedLoop runs clients one after another request until they have sent two requests. A busy machine
// may need more than a moment for that. It calls begin before each attempt.
func closedLoop(t *testing.T, target Target, clients int, begin func()) *TargetResult {
	t.Helper()
	for d := 50 * time.Millisecond; ; d *= 2 {
		begin()
		r, err := RunClosed(t.Context(), target, clients, d)
		if err == nil && r.Requests > 1 {
			return r
		}
		if d > time.Minute {
			t.Fatalf("no two requests in %v: %+v, %v", d, r, err)
		}
	}
}

func TestRunReusesConnections(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	r := closedLoop(t, Target{Name: "kept", URL: s.URL}, 1, func() { connections.Store(0) })
	if n := connections.Load(); n != 1 || r.Good != r.Requests {
		t.Errorf("%d connections for %d good answers of %d, want 1", n, r.Good, r.Requests)
	}
}

func TestRunOverUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.URL.Path != "/v1/batch" || r.Host != "instance" || r.Header.Get("X-A") != "b" {
			w.WriteHeader(http.StatusBadRequest)
		}
		io.Copy(io.Discard, r.Body)
	}))
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	r := closedLoop(t, Target{
		Name: "unix", URL: "http://instance/v1/batch", Socket: socket, Method: http.MethodPut,
		Header: http.Header{"X-A": {"b"}}, Body: Cycle(make([]byte, 1<<20)),
	}, 2, func() {})
	if r.Good != r.Requests {
		t.Errorf("%d good of %d: %v %v", r.Good, r.Requests, r.Codes, r.FirstError)
	}
}

// A target with TLS gets its requests over kept connections of TLS.
func TestTLS(t *testing.T) {
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			t.Error("a request without TLS")
		}
		_, _ = io.Copy(w, r.Body)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	target := Target{Name: "secure", URL: s.URL, TLS: &tls.Config{InsecureSkipVerify: true}, Body: Cycle([]byte("body")),
		Verify: func(_ int, answer []byte) error {
			if string(answer) != "body" {
				return fmt.Errorf("answer %q", answer)
			}
			return nil
		}}
	r := closedLoop(t, target, 2, func() { opened.Store(0) })
	if r.Good != r.Requests || opened.Load() > 2 {
		t.Errorf("%d good of %d over %d connections: %v %v", r.Good, r.Requests, opened.Load(), r.Codes, r.FirstError)
	}
}

// A body over the server's limit: it answers without reading it and hangs up.
func TestAnswerToUnreadBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
	r := closedLoop(t, Target{Name: "large", URL: s.URL, Body: Cycle(make([]byte, 8<<20))}, 1, func() {})
	if r.Codes[http.StatusRequestEntityTooLarge] == 0 {
		t.Errorf("codes %v, error %v; want 413", r.Codes, r.FirstError)
	}
}

func TestRunRefusesNonsense(t *testing.T) {
	for name, o := range map[string]Options{
		"no targets": {Duration: time.Second},
		"https":      {Duration: time.Second, Targets: []Target{{URL: "https://x", Rate: 1}}},
		"no host":    {Duration: time.Second, Targets: []Target{{URL: "mnist", Rate: 1}}},
		"no rate":    {Duration: time.Second, Targets: []Target{{URL: "http://x"}}},
		"method":     {Duration: time.Second, Targets: []Target{{URL: "http://x", Rate: 1, Method: "A B"}}},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := RunClosed(t.Context(), Target{URL: "http://x"}, 0, time.Second); err == nil {
		t.Error("no clients: no error")
	}
}

// Target.Send replaces HTTP/1.1.
func TestRunSendsATargetsOwnWay(t *testing.T) {
	sent := make(chan string, 100)
	target := Target{Name: "own", Rate: 50, SLO: time.Second, Body: Cycle([]byte("a"), []byte("b")),
		Send: func(ctx context.Context, body []byte) (int, []byte, error) {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("a request has no deadline")
			}
			sent <- string(body)
			if string(body) == "b" {
				return 0, nil, errors.New("no b here")
			}
			return 200, []byte("fine"), nil
		},
		Verify: func(_ int, body []byte) error {
			if string(body) != "fine" {
				return errors.New("not fine")
			}
			return nil
		}}
	r, err := Run(t.Context(), Options{Targets: []Target{target}, Duration: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Targets[0]; got.Requests != 10 || got.Good != 5 || got.Failed != 5 || len(sent) != 10 {
		t.Errorf("%+v, %d sent", got, len(sent))
	}
}
