package async

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// quick makes the functions' retries short.
var quick = map[string]string{retry.Attempts: "3", retry.MinWait: "20ms", retry.MaxWait: "50ms"}

func quickly(o *Options) {
	o.Functions = &deployed{by: map[string]map[string]string{"echo.openfaas-fn": quick, "slow.openfaas-fn": nil}}
}

func (r *rig) enqueue(t testing.TB, function, body string, header ...string) {
	t.Helper()
	if w := r.do("POST", "/async-function/"+function, body, header...); w.Code != 202 {
		t.Fatalf("enqueue: %d %s", w.Code, w.Body)
	}
}

func TestTriedAgainUntilItWorks(t *testing.T) {
	var tries atomic.Int32
	done := make(chan int32, 1)
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		switch n := tries.Add(1); n {
		case 1:
			return nil, errors.New("connection reset")
		case 2:
			return respond(503, "busy"), nil
		default:
			done <- n
			return respond(200, ""), nil
		}
	}, quickly)
	r.enqueue(t, "echo", "x")
	if n := <-done; n != 3 {
		t.Errorf("it worked at try %d", n)
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	if n := tries.Load(); n != 3 {
		t.Errorf("%d tries, want 3", n)
	}
	r.letters(t, 0)
}

func TestGivenUpAndReplayed(t *testing.T) {
	var tries atomic.Int32
	var well atomic.Bool
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		tries.Add(1)
		if well.Load() {
			return respond(200, ""), nil
		}
		return respond(500, "out of order"), nil
	}, quickly)
	for i := range 5 {
		r.enqueue(t, "echo/a/b?c=d", fmt.Sprint("body ", i), "X-Call-Id", fmt.Sprint("id-", i))
	}
	letters := r.letters(t, 5)
	if n := tries.Load(); n != 15 {
		t.Errorf("%d tries, want 15", n)
	}
	l := letters[0]
	if l.Function != "echo.openfaas-fn" || l.Reason != retry.Failed || l.Attempts != 3 || l.Status != 500 || !strings.HasPrefix(l.CallID, "id-") ||
		l.Queued.IsZero() || l.Time.Before(l.Queued) || l.Size == 0 || l.Detail != "the function answered 500" {
		t.Errorf("letter %+v", l)
	}
	var shown Shown
	w := r.do("GET", fmt.Sprintf("/system/async/dead/%d", l.Sequence), "")
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil || shown.Request == nil || shown.Request.Path != "/a/b" || shown.Request.QueryString != "c=d" || !strings.HasPrefix(string(shown.Request.Body), "body ") {
		t.Errorf("shown %v %s", err, w.Body)
	}
	well.Store(true)
	for _, order := range []string{fmt.Sprintf(`{"sequences":[%d,999]}`, l.Sequence), `{"all":true}`} {
		w := r.do("POST", "/system/async/dead/replay", order)
		t.Logf("%s: %s", order, w.Body)
		if w.Code != 200 {
			t.Fatal(w.Code)
		}
	}
	r.letters(t, 0)
	until(t, "all replayed", func() bool { return tries.Load() == 20 })
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	if n := tries.Load(); n != 20 {
		t.Errorf("%d tries, want 20: each is replayed once", n)
	}
}

func TestReplayedOnceByMany(t *testing.T) {
	var well atomic.Bool
	var done counts
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		if !well.Load() {
			return nil, statusError(500)
		}
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, quickly)
	for i := range 50 {
		r.enqueue(t, "echo", fmt.Sprint(i))
	}
	r.letters(t, 50)
	well.Store(true)
	results := make(chan int)
	for range 4 {
		go func() { results <- r.do("POST", "/system/async/dead/replay", `{"all":true}`).Code }()
	}
	for range 4 {
		if code := <-results; code != 200 {
			t.Error(code)
		}
	}
	r.letters(t, 0)
	until(t, "all replayed", func() bool { return done.different() == 50 })
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	for body, n := range done.by {
		if n != 1 {
			t.Errorf("%s was executed %d times", body, n)
		}
	}
}

func TestFunctionThatGoesAway(t *testing.T) {
	var absent atomic.Bool
	absent.Store(true)
	told := make(chan *http.Request, 1)
	server := recorder(t, func(w http.ResponseWriter, r *http.Request) { told <- r })
	done := make(chan struct{}, 1)
	functions := &deployed{by: map[string]map[string]string{"echo.openfaas-fn": nil}}
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		if absent.Load() {
			functions.remove("echo.openfaas-fn") // Not before it was accepted.
			return nil, statusError(404)
		}
		done <- struct{}{}
		return respond(404, "the function's own"), nil
	}, func(o *Options) { o.Functions = functions })
	r.enqueue(t, "echo", "x", "X-Callback-Url", server)
	if l := r.letters(t, 1)[0]; l.Reason != retry.Absent || l.Attempts != 1 || l.Callback != server {
		t.Errorf("letter %+v", l)
	}
	if c := <-told; c.Header.Get("X-Function-Status") != "404" {
		t.Errorf("the callback is told %v", c.Header)
	}
	if w := r.do("POST", "/system/async/dead/replay", `{"all":true}`); !strings.Contains(w.Body.String(), "deploy it first") {
		t.Errorf("replayed without its function: %s", w.Body)
	}
	r.letters(t, 1)
	// It is deployed again; that it answers 404 itself is its own affair.
	r.functions.set("echo.openfaas-fn", nil)
	absent.Store(false)
	if w := r.do("POST", "/system/async/dead/replay", `{"all":true}`); w.Code != 200 {
		t.Error(w.Body)
	}
	<-done
	<-told
	r.letters(t, 0)
}

// Foreign messages in the stream become dead letters and do no harm.
func TestPoison(t *testing.T) {
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(200, ""), nil }, nil)
	for _, data := range [][]byte{nil, []byte("{"), []byte(`{"Function":"other"}`), []byte(`{"Function":"echo","Header":{"a b":["c"]}}`), []byte("\xff\x00")} {
		if _, err := r.broker.JetStream().Publish(t.Context(), queue.WorkSubjects+"openfaas-fn.echo", data); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.broker.JetStream().Publish(t.Context(), queue.WorkSubjects+"strange subject", []byte("x")); err == nil {
		t.Error("a subject with a space")
	}
	if _, err := r.broker.JetStream().Publish(t.Context(), queue.WorkSubjects+"NO_such$one.x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	r.wake(destination{name: "echo.openfaas-fn"})
	for _, l := range r.letters(t, 6) {
		if l.Reason != retry.Malformed || l.Detail == "" {
			t.Errorf("letter %+v", l)
		}
	}
	if w := r.do("POST", "/system/async/dead/replay", `{"all":true}`); !strings.Contains(w.Body.String(), "request cannot be executed") {
		t.Errorf("poison was replayed: %s", w.Body)
	}
	if w := r.do("DELETE", "/system/async/dead", ""); w.Body.String() != "{\"purged\":6}\n" {
		t.Errorf("purge: %d %s", w.Code, w.Body)
	}
}

// A slow function holds up no other function.
func TestSlowFunction(t *testing.T) {
	t.Parallel()
	// Were the machine to stand still for longer, they would be handed out twice.
	const held = 4 * time.Second
	release := make(chan struct{})
	var done counts
	r := start(t, func(ctx context.Context, name string, r *frame.Request) (*frame.Response, error) {
		if name == "slow.openfaas-fn" {
			select {
			case <-release:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		done.add(name + string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Concurrency = 4; o.AckWait = held })
	for i := range 50 {
		r.enqueue(t, "slow", fmt.Sprint(i))
	}
	for i := range 200 {
		r.enqueue(t, "echo", fmt.Sprint(i))
	}
	until(t, "the fast ones are done", func() bool { return done.different() == 200 })
	// Those in hand are kept for longer than AckWait.
	time.Sleep(held + held/8)
	until(t, "46 wait, 4 are in hand, and no others", func() bool {
		s, err := r.Status(t.Context())
		return err == nil && len(s.Functions) == 1 && s.Functions[0] == FunctionStatus{Name: "slow.openfaas-fn", Queued: 46, InFlight: 4}
	})
	close(release)
	until(t, "the slow ones are done", func() bool { return done.different() == 250 })
	for body, n := range done.by {
		if n != 1 {
			t.Errorf("%s was executed %d times", body, n)
		}
	}
}

// Requests that wait for another try do not hold up others.
func TestManyPutOff(t *testing.T) {
	var good atomic.Int32
	r := start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		if string(r.Body) == "bad" {
			return nil, statusError(503)
		}
		good.Add(1)
		return respond(200, ""), nil
	}, func(o *Options) { o.Concurrency = 4 })
	for range 100 {
		r.enqueue(t, "echo", "bad")
	}
	r.enqueue(t, "echo", "good")
	started := time.Now()
	until(t, "the good one is executed", func() bool { return good.Load() == 1 })
	// The others are tried for a quarter of an hour.
	if d := time.Since(started); d > time.Minute {
		t.Errorf("after %v", d)
	}
}

// A request for a model that its function does not have is answered with the provider's 404, and
// is no dead letter.
func TestRequestForAnUnknownModel(t *testing.T) {
	told := make(chan *http.Request, 1)
	server := recorder(t, func(w http.ResponseWriter, r *http.Request) { told <- r })
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return nil, statusError(404) },
		func(o *Options) { o.Functions = &deployed{by: map[string]map[string]string{"echo.openfaas-fn": nil}} })
	r.enqueue(t, "echo", "x", "X-Callback-Url", server)
	if c := <-told; c.Header.Get("X-Function-Status") != "404" {
		t.Errorf("the callback is told %v", c.Header)
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	r.letters(t, 0)
}
