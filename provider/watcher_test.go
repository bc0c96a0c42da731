package provider

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/history"
)

// When the machine's clock is set back, functions are sampled as before, and their history has the ages that it had.
func TestClockIsSetBack(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	second := func() functionStats {
		*at = at.Add(time.Second)
		r.watcher.tick(*at)
		return r.stats(t, "?function=mnist&window=1m&step=10s").Functions[0]
	}
	for range 30 {
		second()
	}
	r.answers(c, 7, 0)
	second()
	for _, back := range []time.Duration{3 * time.Second, 10 * time.Second, time.Minute, 24 * time.Hour} {
		*at = at.Add(-back)
		r.answers(c, 5, 0)
		before := r.stats(t, "").Functions[0].Minute.Arrived
		f := second()
		for range maxSetBack { // A small one is waited for.
			f = second()
		}
		if f.Minute.Arrived < 5 || f.Minute.Arrived < before {
			t.Errorf("%v back: %d requests in the last minute, %d before", back, f.Minute.Arrived, before)
		}
		for range maxSetBack { // The step with the requests ends.
			f = second()
		}
		sum := uint64(0)
		for i, end := range f.Series.At {
			if sum += f.Series.Arrived[i]; end > at.Unix()+maxSetBack || end < at.Unix()-2*60 {
				t.Errorf("%v back: a step ends at %d, and it is %d", back, end, at.Unix())
			}
		}
		if sum == 0 {
			t.Errorf("%v back: the series has no request: %+v", back, f.Series)
		}
		looks := c.looks.Load()
		for range restPause + 1 {
			*at = at.Add(time.Second)
			r.watcher.tick(*at)
		}
		if c.looks.Load() == looks {
			t.Errorf("%v back: nobody looks at the instances", back)
		}
		for range 50 {
			second()
		}
	}
}

// Viewers who come in one second share the events with which they begin, which have what later events do not repeat.
func TestViewersShareTheirFirstEvents(t *testing.T) {
	r, _, at := watched(t, nil)
	r.deploy(t, nil)
	k := audienceKey{namespace: DefaultNamespace}
	join := func() []byte {
		t.Helper()
		_, first, err := r.watcher.join(t.Context(), *at, k)
		if err != nil {
			t.Fatal(err)
		}
		return first
	}
	one, two := join(), join()
	if &one[0] != &two[0] {
		t.Error("two viewers of one second have events of their own")
	}
	r.watcher.tick(*at)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "other" })
	*at = at.Add(time.Second)
	if three := join(); len(three) <= len(one) {
		t.Errorf("a viewer who comes later does not get the new function: %s", three)
	}
}

// Another objective is judged by what is answered since then. What was refused stays in the minute's counts.
func TestNewObjectiveIsJudgedAnew(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	second := func(good, refused int) functionStats {
		r.answers(c, good, refused)
		*at = at.Add(time.Second)
		r.watcher.tick(*at)
		return r.stats(t, "").Functions[0]
	}
	second(0, 0)
	if f := second(10, 20); f.State != history.Misses {
		t.Fatalf("%s %q", f.State, f.Sentence)
	}
	if w := r.do("PUT", "/system/functions", deployment(annotated("com.openfaas.slo.latency", "400ms"))); w.Code >= 300 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if f := second(0, 0); f.State != history.OK || f.Minute.Refused != 20 {
		t.Errorf("at once: %s %q %+v", f.State, f.Sentence, f.Minute)
	}
	if f := second(30, 0); f.State != history.OK || f.Sentence != "" {
		t.Errorf("all in time since: %s %q", f.State, f.Sentence)
	}
	if f := second(10, 20); f.State != history.Misses || !strings.HasPrefix(f.Sentence, "33 % refused") {
		t.Errorf("refusals since: %s %q", f.State, f.Sentence)
	}
}

// A function that refuses all requests as wrong has no attainment, and its sentence says so.
func TestWrongRequestsAreShown(t *testing.T) {
	for name, edit := range map[string]func(d *types.FunctionDeployment){"model": nil, "function": func(d *types.FunctionDeployment) { d.Annotations = nil }} {
		r, _, at := watched(t, nil)
		r.deploy(t, edit)
		r.watcher.tick(*at)
		*at = at.Add(time.Second)
		d, _ := r.named("mnist")
		d.dispatcher = dispatcherFunc(func(context.Context, *frame.Request) (*frame.Response, error) {
			return &frame.Response{Status: 400, Body: []byte("the model takes 4 numbers")}, nil
		})
		for range 12 {
			r.do("POST", "/function/mnist", "{}")
		}
		r.watcher.tick(*at)
		f := r.stats(t, "").Functions[0]
		want := "all 12 requests were refused as wrong (400): the client's request does not fit the " + name
		if f.State == history.Misses || f.Minute.Attainment != nil || f.Sentence != want {
			t.Errorf("%s: %s %v %q, want %q", name, f.State, f.Minute.Attainment, f.Sentence, want)
		}
	}
}

// One request that waited for the first instance is no reason to call for help.
func TestColdStartIsNoMiss(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	ready := c.shows["mnist.openfaas-fn"]
	c.shows["mnist.openfaas-fn"] = Watched{}
	r.watcher.tick(*at)
	d, _ := r.named("mnist")
	d.metrics.Begin()
	d.observe(200, true, *at, nil)
	c.shows["mnist.openfaas-fn"] = ready
	*at = at.Add(time.Second)
	r.watcher.tick(*at)
	if f := r.stats(t, "").Functions[0]; f.State != history.OK || f.Minute.Late != 1 || f.Sentence != "one request waited for the first instance" {
		t.Errorf("%s %q %+v", f.State, f.Sentence, f.Minute)
	}
}

// Functions that come and go under new names leave nothing behind.
func TestWatcherForgets(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	k := audienceKey{namespace: DefaultNamespace}
	v, _, err := r.watcher.join(t.Context(), *at, k)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		name := fmt.Sprintf("f%d", i)
		c.shows[name+".openfaas-fn"] = Watched{Instances: []WatchedInstance{shownInstance(name, cluster.Ready)}}
		r.deploy(t, func(d *types.FunctionDeployment) { d.Service = name })
		*at = at.Add(time.Second)
		r.watcher.tick(*at)
		r.do("DELETE", "/system/functions", fmt.Sprintf(`{"functionName":%q}`, name))
		if i%2 == 0 {
			*at = at.Add(time.Second)
			r.watcher.tick(*at)
		}
		for len(v.frames) > 0 {
			<-v.frames
		}
	}
	*at = at.Add(time.Second)
	r.watcher.tick(*at)
	if f, sent := len(r.watcher.functions), len(r.watcher.audiences[k].sent); f != 1 || sent != 1 {
		t.Errorf("%d functions are sampled, and %d were sent; there is 1", f, sent)
	}
}

// Samples, questions, viewers, requests and changes of functions at once.
func TestWatchersAtOnce(t *testing.T) {
	var seconds atomic.Int64
	clock := func() time.Time { return now.Add(time.Duration(seconds.Load()) * time.Second) }
	r, c, _ := watched(t, func(o *Options) { o.Now, o.Decisions = clock, decisions.NewLog() })
	c.dispatcher = dispatcherFunc(echo)
	r.deploy(t, nil)
	var group sync.WaitGroup
	for _, act := range []func(i int){
		func(int) {
			seconds.Add(1)
			r.watcher.tick(clock())
			r.watcher.findRoom(t.Context())
		},
		func(i int) { r.do("GET", "/system/stats"+[]string{"", "?function=mnist&window=1m&step=10s"}[i%2], "") },
		func(i int) {
			k := audienceKey{namespace: DefaultNamespace, function: []string{"", "mnist"}[i%2]}
			if v, _, err := r.watcher.join(t.Context(), clock(), k); err == nil {
				r.watcher.leave(k, v)
			}
		},
		func(int) { r.do("POST", "/function/mnist", "{}") },
		func(i int) {
			name := fmt.Sprintf("f%d", i%3)
			r.do("POST", "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Service = name }))
			r.do("DELETE", "/system/functions", fmt.Sprintf(`{"functionName":%q}`, name))
		},
	} {
		group.Go(func() {
			for i := range 30 {
				act(i)
			}
		})
	}
	group.Wait()
	seconds.Add(1)
	if f := r.stats(t, "").Functions; len(f) != 1 || f[0].Hour.Arrived != 30 || r.watcher.viewers != 0 || len(r.watcher.audiences) != 0 {
		t.Errorf("%+v, %d viewers of %d kinds are left", f, r.watcher.viewers, len(r.watcher.audiences))
	}
}

// busyPlanner is a planner that takes long.
type busyPlanner struct{ *watching }

func (busyPlanner) Plan(ctx context.Context, _ string, _ time.Duration, _ float64) (WhatIf, error) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
	return WhatIf{}, ctx.Err()
}

// Each second has its sample while the planner looks for a remedy.
func TestSecondsDoNotWaitForThePlanner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := watched(t, func(o *Options) {
			o.Controller, o.Now = busyPlanner{o.Controller.(*watching)}, time.Now
		})
		r.deploy(t, nil)
		if _, _, err := r.watcher.join(t.Context(), time.Now(), audienceKey{namespace: DefaultNamespace}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Watch(ctx, r.Server)
		}()
		time.Sleep(10500 * time.Millisecond) // Of the bubble's clock.
		r.watcher.mu.Lock()
		behind := time.Now().Unix() - r.watcher.at
		r.watcher.mu.Unlock()
		if behind > 1 {
			t.Errorf("the latest sample is of %d s ago", behind)
		}
		stop()
		<-done
	})
}

// Instances with one config are compared by their executions. One that has executed nothing says nothing.
func TestPredictedAgainstSeen(t *testing.T) {
	busy, less, none := shownInstance("a", cluster.Ready), shownInstance("b", cluster.Ready), shownInstance("c", cluster.Ready)
	busy.Executions, busy.Size, busy.Predicted, busy.Seen = 30, 1, 10*time.Millisecond, 12*time.Millisecond
	less.Executions, less.Size, less.Predicted, less.Seen = 10, 5, 30*time.Millisecond, 20*time.Millisecond
	none.Executions, none.Size, none.Seen = 0, 8, 0
	if got := predicted([]WatchedInstance{busy, less, none}); len(got) != 1 || got[0].MeanBatch != 2 || got[0].Predicted != 15 || *got[0].Seen != 14 || got[0].Executions != 40 {
		t.Errorf("%+v", got)
	}
	busy.Planned, less.Planned = 10*time.Millisecond, 10*time.Millisecond
	f := watchedFunction{d: &deployed{Function: &Function{}}, series: history.New(0, latencyBounds, history.Sample{}), state: Watched{Instances: []WatchedInstance{busy, less, none}}}
	if s := f.situation(history.Summary{}); s.Slower != 1.6 {
		t.Errorf("executions take %g times as long as planned, want 1.6", s.Slower)
	}
	if got := predicted([]WatchedInstance{none}); got[0].MeanBatch != 8 || got[0].Predicted != 40 || got[0].Seen != nil {
		t.Errorf("without executions %+v", got)
	}
}

// A restart of the provider keeps the last hour and the decisions.
func TestHistoryOverARestart(t *testing.T) {
	log := decisions.NewLog()
	r, c, at := watched(t, func(o *Options) { o.Decisions = log })
	r.deploy(t, nil)
	r.watcher.tick(*at)
	r.answers(c, 76, 24)
	*at = at.Add(time.Second)
	r.watcher.tick(*at)
	log.Add(now, "other.openfaas-fn", decisions.Delete, decisions.Fields{})
	text := HistoryOf(r.Server).Save()
	if text == nil || HistoryOf(r.Server).Save() != nil {
		t.Fatalf("the first text has %d bytes, and the same was saved again", len(text))
	}
	_, next := log.Since(0, "", "", 0)

	restarted := func(edit func(d *types.FunctionDeployment), later time.Duration, text []byte) statsWindow {
		t.Helper()
		again, _, clock := watched(t, func(o *Options) { log = decisions.NewLog(); o.Decisions = log })
		if err := HistoryOf(again.Server).Restore(text); err != nil {
			t.Fatal(err)
		}
		*clock = now
		again.deploy(t, edit)
		*clock = at.Add(later)
		return again.stats(t, "").Functions[0].Hour
	}
	if hour := restarted(nil, 5*time.Second, text); hour.Arrived != 100 || hour.Refused+hour.Late+hour.Failed != 24 {
		t.Errorf("after a restart the hour is %+v", hour)
	}
	if found, _ := log.Since(0, "", "other", 0); len(found) != 1 || found[0].ID != next || found[0].Kind != decisions.Delete {
		t.Errorf("after a restart the decisions about another function are %+v", found)
	}
	if found, _ := log.Since(next, "", "", 0); len(found) == 0 {
		t.Error("a page that knows the decisions before the restart gets none of those after it")
	}
	if hour := restarted(nil, 2*time.Hour, text); hour.Arrived != 0 {
		t.Errorf("two hours later the hour is %+v", hour)
	}
	if hour := restarted(nil, -time.Hour, text); hour.Arrived != 0 {
		t.Errorf("with a clock that was set back the hour is %+v", hour)
	}
	if hour := restarted(nil, time.Second, bytes.ReplaceAll(text, []byte(`"created":`), []byte(`"created":1`))); hour.Arrived != 0 {
		t.Errorf("another function with the name has the hour %+v", hour)
	}
	again, _, _ := watched(t, func(o *Options) { o.Decisions = decisions.NewLog() })
	if err := HistoryOf(again.Server).Restore(text); err != nil {
		t.Fatal(err)
	}
	if hour := restarted(nil, time.Second, HistoryOf(again.Server).Save()); hour.Arrived != 100 {
		t.Errorf("after two restarts, before its function was back, the hour is %+v", hour)
	}
	if err := HistoryOf(r.Server).Restore(text[:len(text)/2]); err == nil {
		t.Error("half of a text is no error")
	}
}
