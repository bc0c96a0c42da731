package async

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// send enqueues a request and returns the URL that the answer has for it.
func (r *rig) send(t testing.TB, function, body string, header ...string) string {
	t.Helper()
	w := r.do("POST", "/async-function/"+function, body, header...)
	if w.Code != 202 {
		t.Fatalf("enqueue: %d %s", w.Code, w.Body)
	}
	url := w.Header().Get("Location")
	if !strings.HasPrefix(url, single) {
		t.Fatalf("Location is %q", url)
	}
	return url
}

// progress is what the provider answers to a GET or DELETE of a request.
func (r *rig) progress(t testing.TB, method, url string) (p Progress) {
	t.Helper()
	w := r.do(method, url, "")
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 {
		t.Fatalf("%s %s: %d %s", method, url, w.Code, w.Body)
	}
	return p
}

// reaches waits until a request has a state.
func (r *rig) reaches(t testing.TB, url, state string) (p Progress) {
	t.Helper()
	until(t, url+" is "+state, func() bool {
		p = r.progress(t, "GET", url)
		return p.State == state
	})
	return p
}

func roomForResults(o *Options) {
	quickly(o)
	o.MaxResults, o.MaxResultCount = queue.DefaultMaxResults, queue.DefaultMaxCount
}

// A request's state is known from its acceptance to its end, to whoever has its ID.
func TestStates(t *testing.T) {
	release, calls := make(chan struct{}), make(chan string, 8)
	var well atomic.Bool
	functions := &deployed{by: map[string]map[string]string{"echo.openfaas-fn": quick, "slow.openfaas-fn": {retry.MinWait: "1h", retry.MaxWait: "1h"}}}
	r := start(t, func(ctx context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		calls <- f.Header.Get("X-Call-Id")
		switch string(f.Body) {
		case "wait":
			<-release
		case "dead":
			if !well.Load() {
				return respond(503, ""), nil
			}
		case "busy":
			return respond(503, ""), nil
		case "no":
			return respond(404, "no"), nil
		}
		return respond(200, "yes"), nil
	}, func(o *Options) { o.Functions, o.Concurrency = functions, 1 })
	first := r.send(t, "echo", "wait")
	p := r.reaches(t, first, Running)
	if p.Attempts != 1 || p.Function != "echo.openfaas-fn" || p.Queued.IsZero() || p.Started.Before(p.Queued) || single+p.ID != first {
		t.Errorf("running: %+v", p)
	}
	if id := <-calls; id == "" || id == p.ID {
		t.Errorf("the function gets X-Call-Id %q, and the ID is %q", id, p.ID)
	}
	var behind []string
	for range 3 { // One waits in hand, the others in the stream.
		behind = append(behind, r.send(t, "echo", "no", "X-Call-Id", "my own"))
	}
	for _, url := range behind {
		if p := r.progress(t, "GET", url); p.State != Queued || p.Attempts != 0 || p.Queued.IsZero() || p.Function != "echo.openfaas-fn" {
			t.Errorf("queued: %+v", p)
		}
	}
	close(release)
	if p := r.reaches(t, first, Done); p.Status != 200 || p.Attempts != 1 || p.Ended.Before(p.Started) {
		t.Errorf("done: %+v", p)
	}
	for _, url := range behind {
		if p := r.reaches(t, url, Failed); p.Status != 404 {
			t.Errorf("failed: %+v", p)
		}
		if id := <-calls; id != "my own" {
			t.Errorf("the function gets X-Call-Id %q", id)
		}
	}
	if p := r.reaches(t, r.send(t, "slow", "busy"), Retrying); p.Attempts != 1 || p.Status != 503 || p.Next.Before(time.Now()) {
		t.Errorf("retrying: %+v", p)
	}
	dead := r.send(t, "echo", "dead")
	if p := r.reaches(t, dead, Dead); p.Attempts != 3 || p.Reason != retry.Failed || p.Status != 503 || p.Detail != "the function answered 503" {
		t.Errorf("dead: %+v", p)
	}
	r.letters(t, 1)
	// It is replayed: the request has the same ID as before.
	well.Store(true)
	if w := r.do("POST", "/system/async/dead/replay", `{"all":true}`); w.Code != 200 {
		t.Fatal(w.Body)
	}
	if p := r.reaches(t, dead, Done); p.Attempts != 1 || p.Status != 200 || p.Reason != "" {
		t.Errorf("replayed: %+v", p)
	}
}

// Nobody can guess an ID, and the name of a function is none.
func TestUnknownIDs(t *testing.T) {
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(200, ""), nil }, nil)
	url := r.send(t, "echo", "x")
	r.reaches(t, url, Done)
	other := "a"
	if strings.HasSuffix(url, other) {
		other = "b"
	}
	for _, wrong := range []string{single + "echo", single + "0-", single + "1-" + strings.Repeat("a", 26), url[:len(url)-1] + other, url + "a",
		single + "0" + strings.TrimPrefix(url, single), strings.Replace(url, "-", "", 1), url + "/other", single} {
		for _, method := range []string{"GET", "DELETE"} {
			if w := r.do(method, wrong, ""); w.Code != 404 {
				t.Errorf("%s %s: %d %s", method, wrong, w.Code, w.Body)
			}
		}
	}
	if w := r.do("PUT", url, ""); w.Code != 405 || w.Header().Get("Allow") != "DELETE, GET, POST" {
		t.Errorf("PUT: %d %v", w.Code, w.Header())
	}
	if second := r.send(t, "echo", "x"); second == url {
		t.Error("two requests have the same ID")
	}
}

// A cancelled request is not executed, or ends at once, and nothing is called back. To cancel it once more
// changes nothing, and one that has ended is not cancelled.
func TestCancel(t *testing.T) {
	var called atomic.Int32
	to := recorder(t, func(http.ResponseWriter, *http.Request) { called.Add(1) })
	began, ended := make(chan string, 8), make(chan error, 8)
	r := start(t, func(ctx context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		began <- string(f.Body)
		if string(f.Body) == "last" {
			return respond(200, ""), nil
		}
		if string(f.Body) == "busy" {
			return respond(503, ""), nil
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}, func(o *Options) {
		o.Concurrency = 1
		o.Functions = &deployed{by: map[string]map[string]string{"echo.openfaas-fn": nil, "slow.openfaas-fn": {retry.MinWait: "1h", retry.MaxWait: "1h"}}}
	})
	running := r.send(t, "echo", "running", "X-Callback-Url", to)
	<-began
	var waiting []string
	for range 3 { // One waits in hand, the others in the stream.
		waiting = append(waiting, r.send(t, "echo", "waiting", "X-Callback-Url", to))
	}
	put := r.send(t, "slow", "busy", "X-Callback-Url", to)
	r.reaches(t, put, Retrying)
	<-began
	last := r.send(t, "echo", "last")
	for _, url := range append(waiting, put, running) {
		for range 2 {
			if p := r.progress(t, "DELETE", url); p.State != Cancelled || p.Ended.IsZero() || single+p.ID != url {
				t.Errorf("cancelled: %+v", p)
			}
		}
	}
	if err := <-ended; err != errCancelled {
		t.Errorf("the execution ended with %v", err)
	}
	if what := <-began; what != "last" {
		t.Errorf("%s was executed", what)
	}
	r.reaches(t, last, Done)
	if p := r.progress(t, "DELETE", last); p.State != Done {
		t.Errorf("cancelled after its end: %+v", p)
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	for _, url := range append(waiting, put, running) {
		if p := r.progress(t, "GET", url); p.State != Cancelled {
			t.Errorf("at the end: %+v", p)
		}
	}
	if called.Load() != 0 || len(began) > 0 {
		t.Errorf("%d callbacks, and %d other executions", called.Load(), len(began))
	}
	r.letters(t, 0)
}

// A request whose callback is not taken can be cancelled, and is then not posted again.
func TestCancelCallback(t *testing.T) {
	var called atomic.Int32
	to := recorder(t, func(w http.ResponseWriter, _ *http.Request) {
		called.Add(1)
		http.Error(w, "later", 503)
	})
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(200, ""), nil }, nil)
	url := r.send(t, "echo", "x", "X-Callback-Url", to)
	until(t, "a callback", func() bool { return called.Load() > 0 })
	if p := r.progress(t, "DELETE", url); p.State != Cancelled {
		t.Errorf("%+v", p)
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	r.letters(t, 0)
}

// Every request is either executed to its end or cancelled, whatever the moment.
func TestCancelAtAnyMoment(t *testing.T) {
	var done counts
	r := start(t, func(_ context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		done.add(string(f.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Concurrency = 4 })
	const n = 200
	states := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			w := r.do("POST", "/async-function/echo", fmt.Sprint(i))
			states[i] = r.progress(t, "DELETE", w.Header().Get("Location")).State
			if again := r.progress(t, "GET", w.Header().Get("Location")).State; again != states[i] {
				t.Errorf("%s became %s", states[i], again)
			}
		})
	}
	all.Wait()
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	cancelled := 0
	for i, state := range states {
		switch {
		case state == Cancelled:
			cancelled++
		case state != Done || done.by[fmt.Sprint(i)] != 1:
			t.Errorf("request %d is %q, executed %d times", i, state, done.by[fmt.Sprint(i)])
		}
	}
	t.Logf("%d of %d were cancelled, %d executed", cancelled, n, done.different())
}

// Any replica tells the state of a request and cancels it, whichever has it, and knows its ID after a restart.
func TestStatesAcrossReplicas(t *testing.T) {
	t.Parallel()
	url := shared(t)
	ended := make(chan error, 2)
	invoke := func(ctx context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	one := start(t, invoke, several(url))
	other := start(t, invoke, several(url))
	other.pools()[0].Close(t.Context()) // Only the first one executes.
	a, b := one.send(t, "echo", "x"), other.send(t, "echo", "x")
	one.wake(destination{name: "echo.openfaas-fn"})
	for _, at := range []string{a, b} {
		other.reaches(t, at, Running)
	}
	if p := other.progress(t, "DELETE", a); p.State != Cancelled {
		t.Errorf("%+v", p)
	}
	if p := one.progress(t, "DELETE", b); p.State != Cancelled {
		t.Errorf("%+v", p)
	}
	for range 2 {
		if err := <-ended; err != errCancelled {
			t.Errorf("the execution ended with %v", err)
		}
	}
	third := start(t, invoke, several(url))
	for _, at := range []string{a, b} {
		for _, r := range []*rig{one, other, third} {
			r.reaches(t, at, Cancelled)
		}
	}
	one.pools()[0].Close(t.Context())
	third.pools()[0].Close(t.Context())
	waiting := other.send(t, "echo", "x")
	for i, r := range []*rig{one, other, third} {
		if p := r.progress(t, "GET", waiting); p.State != Queued {
			t.Errorf("at replica %d: %+v", i, p)
		}
	}
	if p := third.progress(t, "DELETE", waiting); p.State != Cancelled {
		t.Errorf("%+v", p)
	}
	if s, err := one.Status(t.Context()); err != nil || s.Queued+uint64(s.InFlight) != 0 {
		t.Errorf("%+v %v", s, err)
	}
}

// The embedded queue knows a request after a restart.
func TestStatesAfterARestart(t *testing.T) {
	dir := t.TempDir()
	ok := func(context.Context, string, *frame.Request) (*frame.Response, error) {
		return respond(200, "kept"), nil
	}
	edit := func(o *Options) { roomForResults(o); o.Dir = dir }
	r := start(t, ok, edit)
	url := r.send(t, "echo", "x", keepHeader, "10m")
	before := r.reaches(t, url, Done)
	r.pools()[0].Close(t.Context())
	waiting := r.send(t, "echo", "x")
	r.stop()
	r = start(t, ok, edit)
	if p := r.progress(t, "GET", url); !p.Ended.Equal(before.Ended) || p.State != Done {
		t.Errorf("%+v, before %+v", p, before)
	}
	if w := r.do("GET", url+"/result", ""); w.Body.String() != "kept" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.reaches(t, waiting, Done)
}

// A kept result is there for as long as the client has asked, and its status says why one is not kept.
func TestKeptResults(t *testing.T) {
	const most = 64 << 10
	callbacks := make(chan string, 8)
	to := recorder(t, func(_ http.ResponseWriter, r *http.Request) { callbacks <- r.Header.Get("X-Function-Status") })
	r := start(t, func(_ context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		status, n := 0, 0
		if _, err := fmt.Sscan(string(f.Body), &status, &n); err != nil {
			return nil, err
		}
		response := &frame.Response{Status: status, Header: http.Header{"Content-Type": {"application/x-zeros"}}}
		_, err := f.Sink.Write(make([]byte, n))
		return response, err
	}, func(o *Options) { quickly(o); o.MaxResults, o.MaxResultCount = most, 3 })
	result := func(url string) (int, string) {
		w := r.do("GET", url+"/result", "")
		if w.Code == 200 && (w.Header().Get("Content-Type") != "application/x-zeros" || w.Header().Get("X-Function-Status") == "") {
			t.Errorf("header %v", w.Header())
		}
		return w.Code, w.Body.String()
	}
	small := r.send(t, "echo", "200 1000", keepHeader, "10m", "X-Callback-Url", to)
	p := r.reaches(t, small, Done)
	if left := time.Until(p.Result.Until); p.Result.Bytes != 1000 || p.Result.Problem != "" || left > 10*time.Minute || left < 5*time.Minute {
		t.Errorf("%+v", p.Result)
	}
	if code, body := result(small); code != 200 || body != string(make([]byte, 1000)) {
		t.Errorf("%d %q", code, body)
	}
	if status := <-callbacks; status != "200" {
		t.Errorf("the callback got %s", status)
	}
	failed := r.send(t, "echo", "404 10", keepHeader, "10m")
	r.reaches(t, failed, Failed)
	if w := r.do("GET", failed+"/result", ""); w.Code != 200 || w.Header().Get("X-Function-Status") != "404" || w.Body.Len() != 10 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for _, c := range []struct{ body, keep, problem, answer string }{
		{"200 10", "", "", "did not ask"},
		{"200 70000", "10m", "the store of results is full", "the store of results is full"},
		{fmt.Sprint("200 ", maxResult+1), "10m", "larger than 8388608 bytes", "larger than 8388608 bytes"},
		{"200 10", "10m", "", ""},
		{"200 10", "10m", "the store of results is full", "is full"}, // The fourth one.
	} {
		url := r.send(t, "echo", c.body, keepHeader, c.keep)
		p := r.reaches(t, url, Done)
		if c.keep == "" && p.Result != nil || c.keep != "" && (p.Result == nil || (p.Result.Problem == "") != (c.problem == "") || !strings.Contains(p.Result.Problem, c.problem)) {
			t.Errorf("%+v: %+v", c, p.Result)
		}
		if code, body := result(url); (code == 200) != (c.answer == "") || !strings.Contains(body, c.answer) {
			t.Errorf("%+v: %d %s", c, code, body)
		}
	}
	for _, wrong := range []string{"0s", "-1m", "25h", "soon", "10"} {
		for _, name := range []string{keepHeader, deadlineHeader} {
			if w := r.do("POST", "/async-function/echo", "x", name, wrong); w.Code != 400 || !strings.Contains(w.Body.String(), name) {
				t.Errorf("%s %s: %d %s", name, wrong, w.Code, w.Body)
			}
		}
	}
	until(t, "nothing is held", func() bool { return r.executor.spool.held.Held() == 0 && len(r.stats()) == 0 })
}

// An expired result is gone, and has made room.
func TestExpiredResult(t *testing.T) {
	t.Parallel()
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(200, "x"), nil },
		func(o *Options) { roomForResults(o); o.MaxResultCount = 1 })
	url := r.send(t, "echo", "x", keepHeader, "1s")
	until(t, "it expires", func() bool {
		w := r.do("GET", url+"/result", "")
		return w.Code == 404 && strings.Contains(w.Body.String(), "was kept until")
	})
	until(t, "there is room", func() bool {
		url := r.send(t, "echo", "x", keepHeader, "1s")
		return r.reaches(t, url, Done).Result.Problem == ""
	})
}

// A provider that keeps no results says so before it takes a request.
func TestKeepsNoResults(t *testing.T) {
	r := start(t, nil, nil)
	if w := r.do("POST", "/async-function/echo", "x", keepHeader, "10m"); w.Code != 400 || !strings.Contains(w.Body.String(), "keeps no results") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Without room for states nobody could ask for a result. Other requests are queued.
func TestKeepsNoResultsWithoutRoom(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	limits := server.JetStreamAccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: 2, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
	if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(200, ""), nil },
		func(o *Options) { o.URL, o.MaxResults = s.ClientURL(), 1<<20 })
	for _, c := range []struct {
		settled bool
		status  int
	}{{true, 400}, {false, 503}} {
		r.executor.states.settled = func() bool { return c.settled }
		w := r.do("POST", "/async-function/echo", "x", keepHeader, "10m")
		if w.Code != c.status || !strings.Contains(w.Body.String(), "keep") {
			t.Errorf("%d %s, want %d", w.Code, w.Body, c.status)
		}
	}
	r.executor.states.settled = func() bool { return true }
	if w := r.do("POST", "/async-function/echo", "x"); w.Code != 202 || w.Header().Get("Location") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// Of the requests that wait in hand, the one with the nearest deadline is executed first, and an urgent one overtakes
// all that wait in the stream.
func TestNearestDeadlineFirst(t *testing.T) {
	const places = 8
	var order []string
	began, release := make(chan struct{}, places), make(chan struct{})
	r := start(t, func(_ context.Context, _ string, f *frame.Request) (*frame.Response, error) {
		body := string(f.Body)
		if began <- struct{}{}; body == "first" {
			<-release
			return respond(200, ""), nil
		}
		order = append(order, body) // One at a time: the others hold their places.
		return respond(200, ""), nil
	}, func(o *Options) { o.Concurrency = places })
	inHand := func(n int) func() bool {
		return func() bool {
			turns := r.executor.turns
			turns.mu.Lock()
			defer turns.mu.Unlock()
			return len(turns.by["openfaas-fn.echo"].waiting) == n
		}
	}
	for range places {
		r.send(t, "echo", "first")
		<-began
	}
	r.send(t, "echo", "usual")
	r.send(t, "echo", "later", deadlineHeader, "2m")
	until(t, "the window is full", inHand(window(places)))
	var last []string
	for i := range 20 {
		last = append(last, r.send(t, "echo", fmt.Sprint(i)))
	}
	r.send(t, "echo", "soon", deadlineHeader, "30s")
	r.send(t, "echo", "sooner", deadlineHeader, "1s")
	until(t, "the urgent ones are in hand", inHand(window(places)+2))
	if s, err := r.Status(t.Context()); err != nil || s.Queued != 24 || s.InFlight != places {
		t.Errorf("%+v %v", s, err)
	}
	release <- struct{}{}
	for range 24 {
		<-began
	}
	r.reaches(t, last[19], Done)
	want := []string{"sooner", "soon", "usual"}
	if len(order) != 24 || !slices.Equal(order[:3], want) {
		t.Errorf("executed in the order %v", order)
	}
	close(release)
}

// Turns are handed out by deadline, then by age, and one that is given up leaves no trace.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, now := newTurns(1), time.Now()
		var mu sync.Mutex
		var order []uint64
		enter := func(ctx context.Context, draining chan struct{}, sequence uint64, deadline time.Duration) {
			go func() {
				leave, ok := turns.enter(ctx, draining, &queue.Message{Key: "k", Sequence: sequence}, now.Add(deadline))
				if !ok {
					return
				}
				mu.Lock()
				order = append(order, sequence)
				mu.Unlock()
				time.Sleep(time.Second)
				leave()
			}()
			synctest.Wait()
		}
		given, stop := context.WithCancel(t.Context())
		draining := make(chan struct{})
		enter(t.Context(), draining, 1, time.Hour)
		enter(t.Context(), draining, 2, time.Hour)
		enter(t.Context(), draining, 3, time.Minute)
		enter(given, draining, 4, time.Second)
		enter(t.Context(), draining, 6, 2*time.Second)
		enter(t.Context(), draining, 5, 2*time.Second)
		enter(t.Context(), draining, 7, time.Hour)
		if s := turns.begun("k", queue.PoolStats{Running: 7, Held: 9}); s != (queue.PoolStats{Running: 1, Held: 3}) {
			t.Errorf("begun %+v", s)
		}
		stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []uint64{1, 5, 6, 3, 2, 7}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		enter(t.Context(), draining, 8, time.Hour)
		enter(t.Context(), draining, 9, time.Hour)
		close(draining)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(order) != 7 || len(turns.by) != 0 {
			t.Errorf("order %v, %d lines left", order, len(turns.by))
		}
	})
}

// A function's own Retry-After puts its next try off.
func TestRetryAfterOfAFunction(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		text   string
		want   time.Duration
	}{
		{503, "30", 30 * time.Second}, {429, "1", time.Second}, {500, "30", 0}, {200, "30", 0}, {503, "", 0}, {503, "-1", 0}, {503, "soon", 0}, {503, "1.5", 0},
		{503, "99999999999999999999", 0}, {503, now.Add(time.Minute).Format(http.TimeFormat), time.Minute}, {503, now.Add(-time.Minute).Format(http.TimeFormat), 0},
	} {
		r := &frame.Response{Status: c.status, Header: http.Header{"Retry-After": {c.text}}}
		if got := retryAfter(r, now); got != c.want {
			t.Errorf("%d %q: %v, want %v", c.status, c.text, got, c.want)
		}
	}
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		return &frame.Response{Status: 503, Header: http.Header{"Retry-After": {"60"}}}, nil
	}, func(o *Options) {
		o.Functions = &deployed{by: map[string]map[string]string{"echo.openfaas-fn": {retry.MinWait: "1ms"}}}
	})
	if p := r.reaches(t, r.send(t, "echo", "x"), Retrying); p.Next.Sub(p.Started) < time.Minute || p.Next.Sub(p.Queued) > 5*time.Minute {
		t.Errorf("%+v", p)
	}
}
