package async

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/retry"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/web"
)

// spareNodes is a Spare in memory. All functions but "slow" run a model.
type spareNodes struct {
	invoke invokerFunc
	// look replaces the state if it is not nil.
	look func() spare.State

	mu    sync.Mutex
	state spare.State
	err   error
	owned bool
	// occupied is the number of next requests that find no instance.
	occupied int
}

func newSpare(invoke invokerFunc) *spareNodes { return &spareNodes{invoke: invoke, owned: true} }

func (s *spareNodes) Serves(name string) bool { return name != "slow.openfaas-fn" }

func (s *spareNodes) Owns(string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned
}

func (s *spareNodes) Left(string) (spare.State, error) {
	if s.look != nil {
		return s.look(), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.err
}

func (s *spareNodes) InvokeSpare(ctx context.Context, name string, r *frame.Request) (*frame.Response, error) {
	s.mu.Lock()
	if s.occupied > 0 {
		s.occupied--
		s.mu.Unlock()
		return nil, spare.ErrOccupied
	}
	s.mu.Unlock()
	return s.invoke(ctx, name, r)
}

func (s *spareNodes) set(change func(s *spareNodes)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

var (
	idle = spare.State{Ready: 1}
	busy = spare.State{Ready: 1, CPU: 0.9}
)

// offer sends a best-effort request for echo.
func (r *rig) offer(t testing.TB, body string, header ...string) {
	t.Helper()
	if w := r.do("POST", "/async-function/echo", body, append(header, spare.Header, spare.BestEffort)...); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

// waiting reports whether the metric shows n best-effort requests that wait.
func (r *rig) waiting(t testing.TB, n int) bool {
	return strings.Contains(gather(t, r), fmt.Sprintf("faas_infer_async_best_effort{} %d\n", n))
}

// Best-effort requests wait while a node is busy, and ordinary ones are executed meanwhile. Once
// it is idle they run one at a time. Neither the wait nor an occupied instance is a try.
func TestBestEffortRunsOnWhatIsLeft(t *testing.T) {
	t.Parallel()
	var done, ordinary counts
	var at, most atomic.Int32
	s := newSpare(func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		time.Sleep(10 * time.Millisecond)
		done.add(string(r.Body))
		return respond(200, ""), nil
	})
	s.state, s.occupied = busy, 2
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		ordinary.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) {
		o.Spare = s
		o.Functions.(*deployed).set("echo.openfaas-fn", map[string]string{retry.Attempts: "1"})
	})
	const n = 5
	for i := range n {
		r.offer(t, fmt.Sprint(i))
	}
	for i := range 20 {
		r.enqueue(t, "echo", fmt.Sprint("ordinary", i))
	}
	until(t, "the ordinary ones are executed", func() bool { return ordinary.different() == 20 })
	until(t, "the metric shows those that wait", func() bool { return r.waiting(t, n) })
	status, err := r.Status(t.Context())
	if err != nil || status.BestEffort != n || status.InFlight != 0 || len(status.Functions) != 1 || status.Functions[0].BestEffort != n {
		t.Errorf("%+v, %v", status, err)
	}
	if done.different() > 0 {
		t.Error("a request ran on a busy node")
	}
	s.set(func(s *spareNodes) { s.state = idle })
	until(t, "all are executed", func() bool { return done.different() == n })
	if most.Load() != 1 {
		t.Errorf("%d ran at a time", most.Load())
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.BestEffort == 0 })
	until(t, "the metric is 0", func() bool { return r.waiting(t, 0) })
	if ordinary.different() != 20 {
		t.Error("the invoker of ordinary requests got one")
	}
	r.letters(t, 0)
}

// A request that finds no instance is queued again, and has not begun.
func TestBestEffortWithoutAnInstance(t *testing.T) {
	s := newSpare(func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(200, ""), nil })
	const times = 1 << 30
	s.state, s.occupied = idle, times
	r := start(t, nil, func(o *Options) { o.Spare = s })
	url := r.send(t, "echo", "x", spare.Header, spare.BestEffort)
	until(t, "it finds no instance", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.occupied < times
	})
	if p := r.reaches(t, url, Queued); p.Attempts != 0 || !p.Started.IsZero() {
		t.Errorf("%+v", p)
	}
	s.set(func(s *spareNodes) { s.occupied = 0 })
	if p := r.reaches(t, url, Done); p.Attempts != 1 || p.Started.IsZero() {
		t.Errorf("%+v", p)
	}
}

// A request that fails is tried again as any other.
func TestBestEffortIsTriedAgain(t *testing.T) {
	var tries atomic.Int32
	s := newSpare(func(context.Context, string, *frame.Request) (*frame.Response, error) {
		tries.Add(1)
		return nil, web.Unavailable(time.Second, "its instance has died")
	})
	s.state = idle
	r := start(t, nil, func(o *Options) {
		o.Spare = s
		o.Functions.(*deployed).set("echo.openfaas-fn", map[string]string{retry.Attempts: "2", retry.MinWait: "10ms"})
	})
	r.offer(t, "x")
	if l := r.letters(t, 1)[0]; l.Reason != retry.Failed || tries.Load() != 2 {
		t.Errorf("%+v after %d tries", l, tries.Load())
	}
}

// An expired request becomes a dead letter, and its callback gets 504. Replayed, it waits again.
func TestBestEffortExpires(t *testing.T) {
	var ran atomic.Int32
	s := newSpare(func(context.Context, string, *frame.Request) (*frame.Response, error) {
		ran.Add(1)
		return respond(200, ""), nil
	})
	s.state = busy
	r := start(t, nil, func(o *Options) { o.Spare, o.SpareAge = s, 300*time.Millisecond })
	calls := make(chan string, 1)
	r.offer(t, "x", "X-Callback-Url", recorder(t, func(_ http.ResponseWriter, q *http.Request) { calls <- q.Header.Get("X-Function-Status") }))
	l := r.letters(t, 1)[0]
	if l.Reason != retry.Expired || !strings.Contains(l.Detail, "300ms as a best-effort request: a node") || ran.Load() != 0 {
		t.Errorf("%+v", l)
	}
	if status := <-calls; status != "504" {
		t.Errorf("the callback got %s", status)
	}
	s.set(func(s *spareNodes) { s.state = idle })
	if w := r.do("POST", "/system/async/dead/replay", `{"all":true}`); w.Code != 200 {
		t.Fatal(w.Body)
	}
	until(t, "the replayed one has run", func() bool { return ran.Load() == 1 })
	<-calls
}

// A request of a function that is removed while it waits is given up.
func TestBestEffortOfARemovedFunction(t *testing.T) {
	s := newSpare(nil)
	s.state = busy
	r := start(t, nil, func(o *Options) { o.Spare = s })
	r.offer(t, "x")
	r.functions.remove("echo.openfaas-fn")
	s.set(func(s *spareNodes) { s.err = statusError(404) })
	if l := r.letters(t, 1)[0]; l.Reason != retry.Absent {
		t.Errorf("%+v", l)
	}
}

func TestBestEffortIsRefused(t *testing.T) {
	r := start(t, nil, func(o *Options) { o.Spare = newSpare(nil) })
	c := gateway(t, "nats://"+r.Address(), time.Minute)
	for _, bad := range []struct{ function, class, want string }{
		{"echo", "batch", `the header X-Infer-Class is "batch": it must be "best-effort"`},
		{"echo", "", `it must be "best-effort"`},
		{"slow", spare.BestEffort, `function "slow" in namespace "openfaas-fn" has no latency objective`},
	} {
		if w := r.do("POST", "/async-function/"+bad.function, "x", spare.Header, bad.class); w.Code != 400 || !strings.Contains(w.Body.String(), bad.want) {
			t.Errorf("%+v: %d %s", bad, w.Code, w.Body)
		}
		for _, name := range []string{spare.Header, strings.ToLower(spare.Header)} {
			if err := c.Publish("faas-request", classed(bad.function, "x", name, bad.class)); err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%+v through the gateway: %v", bad, err)
			}
		}
	}
	without := start(t, nil, nil)
	if w := without.do("POST", "/async-function/echo", "x", spare.Header, spare.BestEffort); w.Code != 400 {
		t.Errorf("without a Spare: %d %s", w.Code, w.Body)
	}
}

// classed is a gateway's message with one more header.
func classed(function, body, header, value string) []byte {
	data, err := json.Marshal(types.QueueRequest{Function: function, Body: []byte(body), Method: "POST", Header: http.Header{header: {value}}})
	if err != nil {
		panic(err)
	}
	return data
}

// The gateway's best-effort requests survive the death of the provider at any instant, and wait
// on after it.
func TestBestEffortSurvivesKills(t *testing.T) {
	t.Parallel()
	dir, log, file := t.TempDir(), filepath.Join(t.TempDir(), "executed"), filepath.Join(t.TempDir(), "idle")
	address := freeAddress(t)
	p := spawn(t, "provider", "CHILD_DIR="+dir, "CHILD_LISTEN="+address, "CHILD_LOG="+log, "CHILD_IDLE="+file)
	until(t, "it listens", func() bool { return listening(address) })
	g := gateway(t, "nats://"+address, time.Minute)
	// A message that a provider takes while it starts, and never acknowledges, must not cost a minute.
	impatient := gateway(t, "nats://"+address, time.Second)
	var accepted []string
	for i := range 20 {
		body := fmt.Sprint("spare", i)
		var err error
		until(t, "the gateway is connected again", func() bool {
			err = g.Publish("faas-request", classed("echo", body, spare.Header, spare.BestEffort))
			return !errors.Is(err, nats.ErrReconnectBufExceeded)
		})
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, body)
		if i%5 == 4 {
			p.kill()
			p.start()
			until(t, "it listens again", func() bool { return impatient.Publish("faas-request", request("echo", "alive")) == nil })
		}
	}
	until(t, "ordinary ones are executed", func() bool { return lines(t, log)["alive"] > 0 })
	for body := range lines(t, log) {
		if body != "alive" {
			t.Errorf("%s ran on a busy node", body)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "all are executed", func() bool { return allDone(lines(t, log), accepted) })
}

// Of two replicas only the owner takes a function's best-effort requests, and gives back the one
// in hand when the function gets another owner.
func TestBestEffortWaitsAtTheOwner(t *testing.T) {
	t.Parallel()
	url := shared(t)
	var by [2]atomic.Int32
	var nodes [2]*spareNodes
	var both [2]*rig
	for i := range both {
		nodes[i] = newSpare(func(context.Context, string, *frame.Request) (*frame.Response, error) {
			by[i].Add(1)
			return respond(200, ""), nil
		})
		nodes[i].state, nodes[i].owned = busy, i == 0
		both[i] = start(t, nil, func(o *Options) { several(url)(o); o.Spare = nodes[i] })
	}
	nodes[1].set(func(s *spareNodes) { s.state = idle })
	for range 3 {
		both[1].offer(t, "x")
	}
	held := func(i int) int { return both[i].sparePool.Stats()["openfaas-fn.echo"].Held }
	until(t, "the owner has one in hand", func() bool { return held(0) == 1 })
	if held(1) != 0 {
		t.Error("the other one has one, too")
	}
	nodes[0].set(func(s *spareNodes) { s.owned = false })
	nodes[1].set(func(s *spareNodes) { s.owned = true })
	until(t, "the new owner executes them", func() bool { return by[1].Load() == 3 })
	if by[0].Load() != 0 {
		t.Error("the first one has executed one")
	}
}
