package provider

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/history"
	"github.com/faas-infer/faas-infer/provider/web"
)

// watching is a controller that shows instances and plans.
type watching struct {
	*fakeController
	shows map[string]Watched
	looks atomic.Int64
	finds WhatIf
	// from is the shortest objective for which finds has room.
	from  time.Duration
	plans int
	asked time.Duration
	rate  float64
}

func (c *watching) Watch(name string) (Watched, bool) {
	c.looks.Add(1)
	w, ok := c.shows[name]
	return w, ok
}

func (c *watching) Plan(_ context.Context, _ string, slo time.Duration, rate float64) (WhatIf, error) {
	c.asked, c.rate = slo, rate
	c.plans++
	if slo < c.from {
		return WhatIf{Lack: LackRoom}, nil
	}
	return c.finds, nil
}

// shownInstance is an instance ⟨8, 1000m⟩.
func shownInstance(id string, state cluster.State) WatchedInstance {
	in := WatchedInstance{Carries: 100, Predicted: 40 * time.Millisecond, Seen: 44 * time.Millisecond, Size: 3, Executions: 10}
	in.ID, in.Node, in.State = cluster.InstanceID(id), "node-1", state
	in.Config = cluster.Config{Batch: 8, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 20}}
	in.Holds = in.Config.Resources
	return in
}

// watched is a rig with a clock that stands, whose controller shows two instances of mnist.
func watched(t testing.TB, edit func(o *Options)) (*rig, *watching, *time.Time) {
	t.Helper()
	at := now
	var c *watching
	r := newRig(t, func(o *Options) {
		c = &watching{fakeController: o.Controller.(*fakeController), shows: map[string]Watched{"mnist.openfaas-fn": {
			Status: Status{Replicas: 2, AvailableReplicas: 2}, Load: 480, Carries: 390, Revision: 1, Lack: LackRoom,
			Instances: []WatchedInstance{shownInstance("a", cluster.Ready), shownInstance("b", cluster.Ready)},
		}}}
		o.Controller, o.Now = c, func() time.Time { return at }
		o.Nodes = func(context.Context) ([]cluster.Node, error) {
			return []cluster.Node{{Name: "node-1", Total: cluster.Resources{CPU: 4000, Memory: 8 << 30}, Free: cluster.Resources{CPU: 2000, Memory: 7 << 30}}}, nil
		}
		if edit != nil {
			edit(o)
		}
	})
	return r, c, &at
}

// statsOf is an answer to GET /system/stats.
type statsOf struct {
	Now, Started float64
	StepS        int `json:"step_s"`
	Functions    []functionStats
	Gone         []statsName
	Nodes        []statsNode
}

func (r *rig) stats(t *testing.T, query string) (s statsOf) {
	t.Helper()
	w := r.do("GET", "/system/stats"+query, "")
	if w.Code != 200 {
		t.Fatalf("GET /system/stats%s: %d %s", query, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return s
}

// answers sends requests of which some are refused.
func (r *rig) answers(c *watching, good, refused int) {
	for i := range good + refused {
		c.dispatcher = dispatcherFunc(echo)
		if i >= good {
			c.dispatcher = dispatcherFunc(func(context.Context, *frame.Request) (*frame.Response, error) {
				return nil, retryError{429, time.Second}
			})
		}
		d, _ := r.named("mnist")
		d.dispatcher = c.dispatcher
		r.do("POST", "/function/mnist", "{}")
	}
}

// Statistics and description say how well an objective is kept, from when it was stated. A deployment that is made
// from the description does not keep that.
func TestPromise(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	if f := r.stats(t, "").Functions[0]; f.Promise != nil {
		t.Errorf("without requests: %+v", f.Promise)
	}
	*at = at.Add(time.Second)
	r.answers(c, 76, 24)
	f := r.stats(t, "").Functions[0]
	if p := f.Promise; p == nil || p.Requests != 100 || p.Kept != 76 || !(p.From < 76 && p.To > 76) {
		t.Errorf("the promise: %+v", p)
	}
	alone, _ := r.described(t, "mnist")
	if said := (*alone.Annotations)[annotation.InferPromise]; !strings.HasPrefix(said, "promised 99 % within 50ms; kept 76 % of 100 since ") {
		t.Errorf("described %q", said)
	}
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Annotations = alone.Annotations
		(*d.Annotations)[annotation.SLOLatency] = "60ms"
	})
	*at = at.Add(time.Second)
	if again := r.stats(t, "").Functions[0]; again.Promise != nil {
		t.Errorf("another objective has %+v of the one before", again.Promise)
	}
}

func TestStats(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	if s := r.stats(t, ""); len(s.Functions) != 1 || s.Functions[0].Minute.Attainment != nil || s.Functions[0].State != "ok" {
		t.Errorf("without requests: %+v", s)
	}
	*at = at.Add(time.Second)
	r.answers(c, 76, 24)
	s := r.stats(t, "")
	f := s.Functions[0]
	if f.Name != "mnist" || f.Namespace != "openfaas-fn" || f.Kind != "model" || f.Image != "mnist:latest" || f.SLO != 50 || f.Revision != (statsRevision{"1", "1"}) ||
		f.Replicas != 2 || f.Available != 2 {
		t.Errorf("function %+v", f)
	}
	if m := f.Minute; m.Arrived != 100 || m.InTime != 76 || m.Refused != 24 || m.Late+m.Failed != 0 || m.Attainment == nil || *m.Attainment != 76 || m.P99 == nil {
		t.Errorf("the last minute: %+v", m)
	}
	if f.State != "misses" || f.Sentence != "24 % refused: load 480/s, instances carry 390/s, no node has room" || f.Remedy == nil || f.Remedy.Label != "Show why" {
		t.Errorf("%q %q %+v", f.State, f.Sentence, f.Remedy)
	}
	if len(f.Instances) != 1 || f.Instances[0].Count != 2 || f.Instances[0].Ready != 2 || f.Cost != 2000 || f.Memory != 2<<20 {
		t.Errorf("instances %+v, cost %d, memory %d", f.Instances, f.Cost, f.Memory)
	}
	if n := s.Nodes; len(n) != 1 || n[0].CPU.Free != 2000 || len(n[0].Instances) != 2 || n[0].Instances[0].Function != "mnist" {
		t.Errorf("nodes %+v", n)
	}
	*at = at.Add(10 * time.Second)
	f = r.stats(t, "?function=mnist&window=1m&step=10s").Functions[0]
	if len(f.Instances) != 2 || f.Instances[0].ID != "a" || f.Instances[0].State != "ready" || *f.Instances[0].Seen != 44 {
		t.Errorf("each instance: %+v", f.Instances)
	}
	if f.Latency == nil || len(f.Latency.Counts) != len(f.Latency.Bounds)+1 || f.Batches == nil || len(f.Predicted) != 1 || f.Predicted[0].Executions != 20 {
		t.Errorf("details %+v %+v %+v", f.Latency, f.Batches, f.Predicted)
	}
	sum := uint64(0)
	for _, n := range f.Series.Arrived {
		sum += n
	}
	if sum != 100 || len(f.Series.At) != len(f.Series.P99) {
		t.Errorf("series %+v", f.Series)
	}
}

// An ordinary function has no objective: all that it answers is in time.
func TestStatsOfAProgram(t *testing.T) {
	r, _, at := watched(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Annotations = nil })
	r.stats(t, "")
	*at = at.Add(time.Second)
	r.do("POST", "/function/mnist", "{}")
	f := r.stats(t, "").Functions[0]
	if f.Kind != "program" || f.SLO != 0 || f.Minute.InTime != 1 || f.Load != 0.5 || f.State != "ok" {
		t.Errorf("%+v", f)
	}
}

func TestStatsBadInput(t *testing.T) {
	r, _, _ := watched(t, nil)
	r.deploy(t, nil)
	for query, words := range map[string][]string{
		"?window=2h": {"window", "1h"}, "?window=x": {"window"}, "?step=500ms": {"step"}, "?step=15s": {"step", "multiple"},
		"?window=1h&step=1s": {"step", "120"}, "?window=10s&step=20s": {"step", "window"}, "?window=-1s": {"window"},
	} {
		wantSentence(t, r.do("GET", "/system/stats"+query, ""), 400, words...)
	}
	for _, path := range []string{"/system/stats?function=none", "/system/stream?function=none"} {
		wantSentence(t, r.do("GET", path, ""), 404, "none")
	}
	wantSentence(t, r.do("GET", "/system/stats?function=mnist.a&namespace=b", ""), 400, "namespaces")
	if err := (span{3600, 10}).check(100); err == nil || !strings.Contains(err.Error(), "20000") {
		t.Errorf("36,000 points: %v", err)
	}
	for body, words := range map[string][]string{
		`{"slo":"x"}`: {"slo"}, `{"slo":"1ns"}`: {"slo"}, `{"slo":"100h"}`: {"slo"}, `{"rate":0}`: {"rate"}, `{"rate":-3}`: {"rate"}, `{"rate":1e9}`: {"rate"}, `{`: {"slo"},
	} {
		wantSentence(t, r.do("POST", "/system/plan/mnist", body), 400, words...)
	}
	wantSentence(t, r.do("POST", "/system/plan/none", `{}`), 404, "none")
	wantSentence(t, r.do("POST", "/system/plan/mnist?namespace=absent", `{}`), 404)
}

func TestPlanRoute(t *testing.T) {
	r, c, _ := watched(t, nil)
	r.deploy(t, nil)
	c.finds = WhatIf{Carries: 430, Instances: []WatchedInstance{shownInstance("p", cluster.Ready), shownInstance("q", cluster.Ready)}}
	w := r.do("POST", "/system/plan/mnist", `{"slo":"100ms","rate":400}`)
	var got planAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if c.asked != 100*time.Millisecond || c.rate != 400 {
		t.Errorf("the planner was asked for %v and %v/s", c.asked, c.rate)
	}
	if !got.Fits || got.Sentence != "2 instances of ⟨8, 1000m⟩ carry 430/s for 2,000m." || got.Cost != 2000 || got.Current.Carries != 390 || got.Current.SLO != 50 {
		t.Errorf("%+v", got)
	}
	c.finds = WhatIf{Lack: LackRoom, Why: "no node has room for 12 requests/s more"}
	w = r.do("POST", "/system/plan/mnist", `{"rate":400}`)
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Fits || got.Sentence != "No node has room for 12 requests/s more." || c.asked != 50*time.Millisecond {
		t.Errorf("%+v %v", got, err)
	}
}

// openStream opens a stream and returns a reader of its events: name and data.
func openStream(t *testing.T, url string) (next func() (name, data string), end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream: %d %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewReader(resp.Body)
	return func() (name, data string) {
		for {
			line, err := lines.ReadString('\n')
			line = strings.TrimSuffix(line, "\n")
			switch {
			case err != nil:
				return "end", err.Error()
			case line == "" && name != "":
				return name, data
			case strings.HasPrefix(line, "event: "):
				name = line[7:]
			case strings.HasPrefix(line, "data: "):
				data = line[6:]
			case strings.HasPrefix(line, ": "):
				name, data = "comment", line[2:]
			}
		}
	}, func() { cancel(); resp.Body.Close() }
}

func served(t *testing.T, r *rig) string {
	s := httptest.NewServer(r.Handler())
	t.Cleanup(func() { s.Close(); http.DefaultClient.CloseIdleConnections() })
	return s.URL
}

func TestStream(t *testing.T) {
	log := decisions.NewLog()
	r, c, at := watched(t, func(o *Options) { o.Decisions = log })
	r.deploy(t, nil)
	url := served(t, r)
	next, end := openStream(t, url+"/system/stream")
	defer end()
	if name, data := next(); name != "hello" || !strings.Contains(data, `"version":"0.1.0"`) || !strings.Contains(data, `"started":`) {
		t.Errorf("first %s %s", name, data)
	}
	if name, data := next(); name != "stats" || !strings.Contains(data, `"name":"mnist"`) || !strings.Contains(data, `"nodes":`) {
		t.Errorf("then %s %s", name, data)
	}
	*at = at.Add(time.Second)
	r.watcher.tick(*at)
	if name, data := next(); name != "decision" || !strings.Contains(data, `"kind":"deploy"`) {
		t.Errorf("the deployment: %s %s", name, data)
	}
	*at = at.Add(time.Second)
	r.watcher.tick(*at) // Nothing has changed.
	log.Add(*at, "other.team-a", decisions.Scale, decisions.Fields{})
	log.Add(*at, "mnist.openfaas-fn", decisions.Scale, decisions.Fields{})
	r.answers(c, 1, 0)
	*at = at.Add(time.Second)
	r.watcher.tick(*at)
	name, data := next()
	if name != "stats" || !strings.Contains(data, `"arrived":1`) || strings.Contains(data, `"nodes":`) {
		t.Errorf("a change: %s %s", name, data)
	}
	if name, data = next(); name != "decision" || !strings.Contains(data, `"id":3,`) {
		t.Errorf("a decision: %s %s", name, data)
	}
	r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`)
	*at = at.Add(time.Second)
	r.watcher.tick(*at)
	if name, data = next(); name != "stats" || !strings.Contains(data, `"gone":[{"name":"mnist","namespace":"openfaas-fn"}]`) {
		t.Errorf("a deletion: %s %s", name, data)
	}
	if name, data = next(); name != "decision" || !strings.Contains(data, `"kind":"delete"`) {
		t.Errorf("the decision of a deletion: %s %s", name, data)
	}
	*at = at.Truncate(pingPeriod * time.Second).Add(pingPeriod * time.Second)
	r.watcher.tick(*at)
	if name, data = next(); name != "comment" || data != "ping" {
		t.Errorf("%s %s", name, data)
	}
}

// However many watch, a second is computed once. A viewer that takes nothing is dropped, and nobody waits for it.
func TestStreamIsMadeOnce(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	all := audienceKey{namespace: DefaultNamespace}
	var viewers []*viewer
	for range 100 {
		v, _, err := r.watcher.join(t.Context(), *at, all)
		if err != nil {
			t.Fatal(err)
		}
		viewers = append(viewers, v)
	}
	made, frames, looks := r.watcher.renderings, r.watcher.frames, c.looks.Load()
	const ticks = maxBehind + 2
	for range ticks {
		r.answers(c, 1, 0)
		*at = at.Add(time.Second)
		r.watcher.tick(*at)
		for _, v := range viewers[:50] {
			select {
			case <-v.frames:
			default:
				t.Fatal("a viewer misses an event")
			}
		}
	}
	if n := r.watcher.renderings - made; n > ticks {
		t.Errorf("the function was written %d times in %d s for 100 viewers", n, ticks)
	}
	if n := r.watcher.frames - frames; n != ticks {
		t.Errorf("%d events were made in %d s", n, ticks)
	}
	if n := c.looks.Load() - looks; n > ticks {
		t.Errorf("the controller was asked %d times in %d s", n, ticks)
	}
	if r.watcher.viewers != 50 {
		t.Errorf("%d viewers are left, of which 50 read", r.watcher.viewers)
	}
	for _, v := range viewers {
		r.watcher.leave(all, v)
	}
	if r.watcher.viewers != 0 || len(r.watcher.audiences) != 0 {
		t.Errorf("%d viewers and %d audiences are left", r.watcher.viewers, len(r.watcher.audiences))
	}
}

// A function at rest is looked at seldom, and written only when something has changed.
func TestRestCostsLittle(t *testing.T) {
	r, c, at := watched(t, nil)
	for i := range 100 {
		name := fmt.Sprintf("f%d", i)
		c.shows[name+".openfaas-fn"] = Watched{Instances: []WatchedInstance{shownInstance(name, cluster.Ready)}}
		r.deploy(t, func(d *types.FunctionDeployment) { d.Service = name })
	}
	v, _, err := r.watcher.join(t.Context(), *at, audienceKey{namespace: DefaultNamespace})
	if err != nil {
		t.Fatal(err)
	}
	looks, made := c.looks.Load(), r.watcher.renderings
	for range 60 {
		*at = at.Add(time.Second)
		r.watcher.tick(*at)
	}
	if n := c.looks.Load() - looks; n > 100*60/restPause {
		t.Errorf("100 functions at rest were looked at %d times in a minute", n)
	}
	if n := r.watcher.renderings - made; n > 100*60/restPause {
		t.Errorf("they were written %d times", n)
	}
	for len(v.frames) > 0 {
		if frame := string(<-v.frames); frame != ": ping\n\n" {
			t.Errorf("sent although nothing has changed: %.200s", frame)
		}
	}
}

func TestTooManyViewers(t *testing.T) {
	r, _, at := watched(t, nil)
	for range maxViewers {
		if _, _, err := r.watcher.join(t.Context(), *at, audienceKey{namespace: DefaultNamespace}); err != nil {
			t.Fatal(err)
		}
	}
	w := r.do("GET", "/system/stream", "")
	wantSentence(t, w, 503, "1024")
	if w.Header().Get("Retry-After") != "10" {
		t.Errorf("headers %v", w.Header())
	}
}

// A function that is deployed again under its name after a deletion begins anew.
func TestStatsAfterADeletion(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	r.answers(c, 3, 0)
	r.stats(t, "")
	r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`)
	r.deploy(t, nil)
	*at = at.Add(time.Second)
	r.answers(c, 1, 0)
	if f := r.stats(t, "").Functions[0]; f.Minute.Arrived != 1 || f.Hour.InTime != 1 {
		t.Errorf("%+v", f.Minute)
	}
}

// A thousand busy functions with a viewer take less than 20 MiB in all.
func TestStatsMemory(t *testing.T) {
	r, c, at := watched(t, nil)
	var all []*deployed
	for i := range 1000 {
		name := fmt.Sprintf("function-with-a-long-name-%d", i)
		f := &Function{Name: name + ".openfaas-fn", Revision: 1}
		f.Deployment.Service, f.Deployment.Namespace, f.Deployment.Image = name, "openfaas-fn", "an-image-with-a-long-name:latest"
		f.Inference.IsInference, f.Inference.SLO = true, time.Second
		c.shows[f.Name] = Watched{Load: 100, Carries: 200, Instances: []WatchedInstance{shownInstance(name, cluster.Ready)}}
		d := r.deployed(f, dispatcherFunc(echo))
		r.publish(d)
		all = append(all, d)
	}
	busy := func() {
		for _, d := range all {
			d.metrics.Begin()
			d.observe(200, false, time.Now(), nil)
			d.metrics.ObserveBatch(1, time.Millisecond, nil)
		}
	}
	busy()
	before := heap()
	v, _, err := r.watcher.join(t.Context(), *at, audienceKey{namespace: DefaultNamespace})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		busy()
		*at = at.Add(time.Second)
		r.watcher.tick(*at)
		<-v.frames
	}
	used := heap() - before
	t.Logf("1,000 functions take %.1f MiB", float64(used)/(1<<20))
	if used > 20<<20 {
		t.Errorf("1,000 functions take %d bytes", used)
	}
	runtime.KeepAlive(r)
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Where no node has room, the planner says which longer objective would help. It is asked seldom, and only while
// somebody watches.
func TestRemedyOfThePlanner(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	c.finds, c.from = WhatIf{Carries: 600}, 90*time.Millisecond
	r.watcher.tick(*at)
	*at = at.Add(2 * unwatched * time.Second)
	r.answers(c, 76, 24)
	r.watcher.tick(*at)
	r.watcher.findRoom(t.Context())
	if c.plans != 0 {
		t.Errorf("nobody watches, and %d plans were made", c.plans)
	}
	r.stats(t, "")
	for range roomPause {
		r.watcher.findRoom(t.Context())
		*at = at.Add(time.Second)
		r.answers(c, 1, 0)
		r.watcher.tick(*at)
	}
	if f := r.stats(t, "").Functions[0]; c.plans != 2 || f.Remedy == nil || f.Remedy.SLO != 100 || f.Remedy.Label != "Allow 100 ms" {
		t.Errorf("%d plans, remedy %+v", c.plans, f.Remedy)
	}
	c.finds.Carries = 500 // That is hardly more than the load.
	for range roomPause { // What was shown stays for a while.
		r.watcher.findRoom(t.Context())
		*at = at.Add(time.Second)
		r.answers(c, 1, 1)
		r.watcher.tick(*at)
	}
	if f := r.stats(t, "").Functions[0]; f.Remedy == nil || f.Remedy.SLO != 0 {
		t.Errorf("no objective helps, and the remedy is %+v", f.Remedy)
	}
}

// Where no config meets the objective, the remedy is one with which the nodes carry the load.
func TestRemedyOfTooShortAnObjective(t *testing.T) {
	r, c, at := watched(t, nil)
	r.deploy(t, nil)
	name := FullName("mnist", DefaultNamespace)
	shown := c.shows[name]
	shown.Lack, shown.Least = LackSpeed, 100*time.Millisecond
	c.shows[name] = shown
	c.finds, c.from = WhatIf{Carries: 600}, 180*time.Millisecond
	r.watcher.tick(*at)
	r.stats(t, "")
	*at = at.Add(2 * roomPause * time.Second)
	r.answers(c, 76, 24)
	r.watcher.tick(*at)
	r.watcher.findRoom(t.Context())
	if f := r.stats(t, "").Functions[0]; f.Remedy == nil || f.Remedy.SLO != 200 {
		t.Errorf("%d plans, remedy %+v", c.plans, f.Remedy)
	}
}

// An instance that is ready describes its model once a revision.
func TestStatsShowTensors(t *testing.T) {
	r, c, _ := watched(t, nil)
	asked := 0
	c.dispatcher = dispatcherFunc(func(_ context.Context, q *frame.Request) (*frame.Response, error) {
		asked++
		if q.Path != "/v2/models/mnist" {
			t.Errorf("asked for %s", q.Path)
		}
		return &frame.Response{Status: 200, Body: []byte(`{"name":"mnist","inputs":[{"name":"x","datatype":"FP32","shape":[-1,784]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,10]}]}`)}, nil
	})
	r.deploy(t, nil)
	for range 3 {
		f := r.stats(t, "?function=mnist").Functions[0]
		if len(f.Inputs) != 1 || f.Inputs[0].Type != "FP32" || len(f.Inputs[0].Shape) != 2 || f.Outputs[0].Name != "y" || f.Minute.Arrived != 0 {
			t.Errorf("%+v %+v %+v", f.Inputs, f.Outputs, f.Minute)
		}
	}
	r.stats(t, "")
	if asked != 1 {
		t.Errorf("the instance was asked %d times", asked)
	}
	c.shows = nil
	r.deploy(t, func(d *types.FunctionDeployment) { d.Image = "other" })
	if f := r.stats(t, "?function=mnist").Functions[0]; asked != 1 || f.Inputs != nil {
		t.Errorf("without an instance: asked %d times, %+v", asked, f.Inputs)
	}
}

func BenchmarkTick(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("busy=%v", busy), func(b *testing.B) {
			r, c, at := watched(b, nil)
			for i := range 100 {
				name := fmt.Sprintf("f%d", i)
				c.shows[name+".openfaas-fn"] = Watched{Instances: []WatchedInstance{shownInstance(name, cluster.Ready)}}
				r.deploy(b, func(d *types.FunctionDeployment) { d.Service = name })
			}
			v, _, err := r.watcher.join(b.Context(), *at, audienceKey{namespace: DefaultNamespace})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				for _, d := range everyFunction(r.Server) {
					if busy {
						d.metrics.Begin()
						d.observe(200, false, time.Now(), nil)
					}
				}
				*at = at.Add(time.Second)
				r.watcher.tick(*at)
				for len(v.frames) > 0 {
					<-v.frames
				}
			}
		})
	}
}

// A stream ends when the provider shuts down, and no other begins.
func TestStreamEndsAtShutdown(t *testing.T) {
	gate := web.NewGate()
	r, _, _ := watched(t, func(o *Options) { o.InFlight = gate })
	r.deploy(t, nil)
	next, end := openStream(t, served(t, r)+"/system/stream?function=mnist")
	defer end()
	if name, _ := next(); name != "hello" {
		t.Errorf("first %s", name)
	}
	if name, data := next(); name != "stats" || !strings.Contains(data, `"id":"a"`) {
		t.Errorf("then %s %s", name, data)
	}
	gate.Close()
	if name, _ := next(); name != "end" {
		t.Errorf("after shutdown %s", name)
	}
	wantSentence(t, r.do("GET", "/system/stream", ""), 503)
}

// A function that is being restored starts. One that cannot run is broken, and its problem is the sentence.
func TestStatsWithoutADispatcher(t *testing.T) {
	for text, x := range map[string]struct {
		err   error
		state history.State
	}{errMissing.Error(): {errMissing, history.Starting}, "the bundle is gone": {errors.New("the bundle <b>is</b>\n gone"), history.Broken}} {
		r, _, _ := watched(t, nil)
		f := &Function{Name: "mnist.openfaas-fn"}
		f.Deployment.Service, f.Deployment.Namespace = "mnist", "openfaas-fn"
		r.publish(r.deployed(f, broken{f.Name, x.err}))
		got := r.stats(t, "").Functions[0]
		if got.State != x.state || strings.NewReplacer("<b>", "", "</b>", "").Replace(got.Sentence) != text {
			t.Errorf("%v: %s %q", x.err, got.State, got.Sentence)
		}
	}
}
