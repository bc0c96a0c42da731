package async

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/stan.go"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// shared starts a NATS server for several providers.
func shared(t *testing.T) (url string) {
	address := freeAddress(t)
	spawn(t, "nats", "CHILD_DIR="+t.TempDir(), "CHILD_LISTEN="+address)
	until(t, "NATS listens", func() bool { return listening(address) })
	return "nats://" + address
}

// several edits options for one of several providers.
func several(url string) func(o *Options) {
	return func(o *Options) { o.URL, o.Several, o.AckWait = url, true, 10*time.Second }
}

// allDone reports whether each body was executed.
func allDone(by map[string]int, bodies []string) bool {
	return !slices.ContainsFunc(bodies, func(b string) bool { return by[b] == 0 })
}

// An older version's replica drops the subjects that it does not know. Urgent requests are accepted again soon.
func TestSubjectsOfAnOlderReplica(t *testing.T) {
	r := start(t, echo, nil)
	js := r.broker.JetStream()
	s, err := js.Stream(t.Context(), queue.WorkStream)
	if err != nil {
		t.Fatal(err)
	}
	older := s.CachedInfo().Config
	older.Subjects = slices.DeleteFunc(older.Subjects, func(s string) bool { return strings.HasPrefix(s, queue.UrgentSubjects) })
	if _, err := js.UpdateStream(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	urgent := func() int { return r.do("POST", "/async-function/echo", "x", deadlineHeader, "1s").Code }
	if code := urgent(); code != 503 {
		t.Errorf("without a subject: %d", code)
	}
	until(t, "it is accepted", func() bool { return urgent() == 202 })
}

// Two providers take each publication once and share the queued requests. When one shuts
// down in order, no request is refused.
func TestTwoProvidersShareAQueue(t *testing.T) {
	url := shared(t)
	var done counts
	var by [2]atomic.Int64
	var both []*rig
	for i := range 2 {
		both = append(both, start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
			by[i].Add(1)
			done.add(string(r.Body))
			return respond(200, ""), nil
		}, several(url)))
	}
	g := gateway(t, url, time.Minute)
	p := publish(16, func(body string) error { return g.Publish("faas-request", request("echo", body)) })
	until(t, "both have executed some", func() bool { return by[0].Load() > 200 && by[1].Load() > 200 })
	both[0].Close(t.Context())
	before := p.count()
	until(t, "the other one goes on", func() bool { return p.count() > before+500 })
	accepted := p.finish()
	if p.refused > 0 {
		t.Errorf("%d requests were refused while one of two providers left", p.refused)
	}
	until(t, "all is executed", func() bool {
		done.mu.Lock()
		defer done.mu.Unlock()
		return allDone(done.by, accepted)
	})
	done.mu.Lock()
	defer done.mu.Unlock()
	for body, n := range done.by {
		if n > 1 {
			t.Errorf("%q was executed %d times", body, n)
		}
	}
	t.Logf("%d accepted, executed by the one %d, by the other %d", len(accepted), by[0].Load(), by[1].Load())
}

// One of two providers is killed again and again, and every accepted request is executed.
func TestOneOfTwoProvidersKilled(t *testing.T) {
	t.Parallel()
	url, log := shared(t), filepath.Join(t.TempDir(), "executed")
	var both []*child
	for range 2 {
		both = append(both, spawn(t, "provider", "CHILD_URL="+url, "CHILD_LOG="+log))
	}
	var g stan.Conn
	until(t, "a provider answers", func() bool {
		var err error
		g, err = stan.Connect("faas-cluster", "gateway", stan.NatsURL(url), stan.ConnectWait(500*time.Millisecond), stan.PubAckWait(time.Second))
		return err == nil
	})
	t.Cleanup(func() { g.Close() })
	p := publish(16, func(body string) error { return g.Publish("faas-request", request("echo", body)) })
	for i := range 4 {
		before := p.count()
		until(t, "the gateway publishes", func() bool { return p.count() > before+200 })
		both[i%2].kill()
		before = p.count()
		until(t, "the gateway publishes to the one that is left", func() bool { return p.count() > before+200 })
		both[i%2].start()
	}
	accepted := p.finish()
	until(t, "all that was accepted has been executed", func() bool { return allDone(lines(t, log), accepted) })
	again := 0
	for _, n := range lines(t, log) {
		again += n - 1
	}
	t.Logf("%d accepted, %d refused, %d executed more than once", len(accepted), p.refused, again)
}

// A provider does not give up requests of a function that only the other one knows yet.
func TestAFunctionThatOneProviderKnowsFirst(t *testing.T) {
	t.Parallel()
	url := shared(t)
	done := make(chan struct{}, 64)
	var missed atomic.Int64
	invoke := func(knows *deployed) invokerFunc {
		return func(_ context.Context, name string, _ *frame.Request) (*frame.Response, error) {
			if _, ok := knows.Annotations(name); !ok {
				missed.Add(1)
				return nil, statusError(404)
			}
			done <- struct{}{}
			return respond(200, ""), nil
		}
	}
	first, second := &deployed{by: map[string]map[string]string{"new.openfaas-fn": nil}}, &deployed{by: map[string]map[string]string{}}
	one := start(t, nil, func(o *Options) { several(url)(o); o.Functions, o.Invoker = first, invoke(first) })
	// What it accepts only the other one takes out of the queue.
	other := start(t, nil, func(o *Options) { several(url)(o); o.Functions, o.Invoker = second, invoke(second) })
	one.pools()[0].Close(t.Context())
	if w := one.do("POST", "/async-function/new", "x"); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	other.wake(destination{name: "new.openfaas-fn"})
	until(t, "the other one has tried", func() bool { return missed.Load() > 0 })
	second.set("new.openfaas-fn", nil)
	<-done
}
