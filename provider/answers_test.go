package provider

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// cached sets the size of a function's cache.
func cached(size string) func(*types.FunctionDeployment) {
	return func(d *types.FunctionDeployment) { (*d.Annotations)[annotation.InferAnswerCache] = size }
}

// numbered answers with the number of the execution and the request's body, as the revision that it has.
type numbered struct {
	executed atomic.Int64
	revision atomic.Uint64
	status   int
}

func (n *numbered) Invoke(_ context.Context, req *frame.Request) (*frame.Response, error) {
	body := fmt.Appendf(nil, "%d %s", n.executed.Add(1), req.Body)
	return &frame.Response{Status: n.status, Header: http.Header{"Content-Type": {"text/x"}}, Body: body, Revision: n.revision.Load()}, nil
}

// An equal request gets the answer to the earlier one, and any other request is executed.
func TestAnswersAreKept(t *testing.T) {
	r := newRig(t, nil)
	to := &numbered{status: http.StatusOK}
	r.controller.dispatcher = to
	r.deploy(t, cached("64Ki"))
	to.revision.Store(r.controller.deployed["mnist.openfaas-fn"].Revision)
	first := r.do("POST", "/function/mnist/v1/embeddings", "a", "Accept", "x/y")
	again := r.do("POST", "/function/mnist/v1/embeddings", "a", "Accept", "x/y", "X-Call-Id", "other")
	if first.Body.String() != "1 a" || again.Body.String() != "1 a" || again.Header().Get("Content-Type") != "text/x" {
		t.Errorf("%s and %s", first.Body, again.Body)
	}
	if first.Header().Get(cacheStatus) != "" || again.Header().Get(cacheStatus) != cacheHit || again.Header().Get("X-Call-Id") != "other" {
		t.Errorf("%v and %v", first.Header(), again.Header())
	}
	if w := r.do("POST", "/v1/embeddings", `{"model":"mnist"}`); w.Body.String() != `2 {"model":"mnist"}` {
		t.Error(w.Body)
	}
	if w := r.do("POST", "/function/mnist/v1/embeddings", `{"model":"mnist"}`); w.Body.String() != `2 {"model":"mnist"}` {
		t.Errorf("both ways to name a function are one: %s", w.Body)
	}
	for i, other := range [][]string{
		{"POST", "/function/mnist/v1/embeddings", "b", "Accept", "x/y"}, {"POST", "/function/mnist/v1/rerank", "a", "Accept", "x/y"},
		{"POST", "/function/mnist/v1/embeddings?q=1", "a", "Accept", "x/y"}, {"POST", "/function/mnist/v1/embeddings", "a", "Accept", "x"},
		{"POST", "/function/mnist/v1/embeddings", "a", "Accept", "x/y", "X-Infer-Latency", "1s"},
		{"POST", "/function/mnist/v1/embeddings", "a", "Accept", "x/y", "Cache-Control", "max-age=0, No-Cache"},
		{"PUT", "/function/mnist/v1/embeddings", "a", "Accept", "x/y"}, {"POST", "/function/mnist/v1/embeddings", "", "Accept", "x/y"},
	} {
		w := r.do(other[0], other[1], other[2], other[3:]...)
		if want := fmt.Sprintf("%d %s", i+3, other[2]); w.Body.String() != want {
			t.Errorf("%q: %s, want %s", other, w.Body, want)
		}
	}
	text := r.do("GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`answer_cache_requests_total{function="mnist.openfaas-fn",outcome="hit"} 2`,
		`answer_cache_requests_total{function="mnist.openfaas-fn",outcome="miss"} 6`, `faas_infer_requests_total{code="200",function="mnist.openfaas-fn"} 12`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if w := r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`); w.Code != http.StatusAccepted {
		t.Fatal(w.Body)
	}
	if text := r.do("GET", "/metrics", "").Body.String(); strings.Contains(text, "answer_cache") {
		t.Error("a removed function has counters")
	}
}

// No answer outlives its revision, none of an instance of the revision before is kept for the next, and no failure is.
func TestAnswersBelongToARevision(t *testing.T) {
	r := newRig(t, nil)
	to := &numbered{status: http.StatusOK}
	r.controller.dispatcher = to
	ask := func() string { return r.do("POST", "/function/mnist", "a").Body.String() }
	revision := func() uint64 { return r.controller.deployed["mnist.openfaas-fn"].Revision }
	r.deploy(t, cached("64Ki"))
	to.revision.Store(revision())
	if got := ask() + ask(); got != "1 a1 a" {
		t.Error(got)
	}
	if w := r.do("PUT", "/system/functions", deployment(func(d *types.FunctionDeployment) { cached("128Ki")(d) })); w.Code != http.StatusAccepted {
		t.Fatal(w.Body)
	}
	if got := ask() + ask(); got != "2 a3 a" {
		t.Errorf("the instances of the revision before answer: %s", got)
	}
	to.revision.Store(revision())
	if got := ask() + ask(); got != "4 a4 a" {
		t.Errorf("those of the new one answer: %s", got)
	}
	d, _ := r.named("mnist")
	d.rollout.Store(&split{})
	if got := ask(); got != "5 a" {
		t.Errorf("while a revision is rolled out: %s", got)
	}
	d.rollout.Store(nil)
	to.status = http.StatusBadRequest
	if got := r.do("POST", "/function/mnist", "b").Body.String() + r.do("POST", "/function/mnist", "b").Body.String(); got != "6 b7 b" {
		t.Errorf("failures: %s", got)
	}
}

// Without the annotation nothing is kept.
func TestAnswersAreNotKeptUnasked(t *testing.T) {
	r := newRig(t, nil)
	to := &numbered{status: http.StatusOK}
	r.controller.dispatcher = to
	r.deploy(t, nil)
	to.revision.Store(r.controller.deployed["mnist.openfaas-fn"].Revision)
	if got := r.do("POST", "/function/mnist", "a").Body.String() + r.do("POST", "/function/mnist", "a").Body.String(); got != "1 a2 a" {
		t.Error(got)
	}
	if text := r.do("GET", "/metrics", "").Body.String(); strings.Contains(text, "answer_cache") {
		t.Error("a function that keeps nothing has counters")
	}
}

// The cache never holds more than its limit, whatever comes, and gives each request its own answer.
func TestAnswersAreBounded(t *testing.T) {
	const limit = 64 << 10
	a := newAnswers(limit, &answerMemory{limit: 1 << 30}, metrics.New(prometheus.NewRegistry()).Function("f").Answers)
	rng := rand.New(rand.NewPCG(1, 2))
	d := &deployed{Function: &Function{Revision: 1}, rollout: new(atomic.Pointer[split])}
	buffer := make([]byte, 0, 1<<20)
	d.dispatcher = dispatcherFunc(func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		return &frame.Response{Status: 200, Revision: 1, Body: req.Body}, nil // In the request's own buffer.
	})
	for range 20000 {
		n := rng.IntN(200)
		buffer = append(buffer[:0], bytes.Repeat([]byte{byte(n)}, 1+n*n)...)
		resp, err := a.invoke(t.Context(), d, &frame.Request{Method: "POST", Path: "/", Body: buffer})
		if err != nil || !bytes.Equal(resp.Body, buffer) {
			t.Fatalf("request %d: %v, %.20q", n, err, resp.Body)
		}
		var sum int64
		for e := a.order.Front(); e != nil; e = e.Next() {
			sum += e.Value.(*keptAnswer).size
		}
		if sum != a.size || sum != a.memory.size || sum > limit || len(a.kept) != a.order.Len() {
			t.Fatalf("%d bytes, counted as %d, in %d and %d answers", sum, a.size, a.order.Len(), len(a.kept))
		}
		clear(buffer) // Another request gets it.
	}
	if a.order.Len() == 0 {
		t.Error("nothing is kept")
	}
}

// Requests that come together do not spoil each other's answers.
func TestAnswersOfManyAtOnce(t *testing.T) {
	a := newAnswers(64<<10, &answerMemory{limit: 1 << 30}, metrics.New(prometheus.NewRegistry()).Function("f").Answers)
	d := &deployed{Function: &Function{}, rollout: new(atomic.Pointer[split]), dispatcher: dispatcherFunc(echo)}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				body := fmt.Appendf(nil, "%d", (i*g)%200)
				resp, err := a.invoke(t.Context(), d, &frame.Request{Method: "POST", Path: "/", Body: body})
				if err != nil || !bytes.Equal(resp.Body, body) {
					t.Errorf("%s: %v", body, err)
				}
				resp.Header["X"] = []string{"mine"}
			}
		})
	}
	all.Wait()
}

// The answers of all functions together stay within their memory: the least recently used one of all goes, and those of
// a function that is removed or deployed anew go at once.
func TestAnswersShareMemory(t *testing.T) {
	memory := &answerMemory{limit: 10 << 10}
	of := func() *answers {
		return newAnswers(1<<30, memory, metrics.New(prometheus.NewRegistry()).Function("f").Answers)
	}
	a, b := of(), of()
	put := func(a *answers, key byte) {
		a.keep(answerKey{key}, &frame.Response{Status: 200, Body: make([]byte, 2<<10)})
	}
	for key := range byte(3) {
		put(a, key)
	}
	put(b, 0)
	if a.find(answerKey{0}) == nil {
		t.Error("the first answer is lost")
	}
	put(b, 1) // In place of the second of a.
	if a.find(answerKey{0}) == nil || a.find(answerKey{1}) != nil || a.find(answerKey{2}) == nil || b.find(answerKey{0}) == nil {
		t.Errorf("%d and %d answers", len(a.kept), len(b.kept))
	}
	if memory.size != a.size+b.size || memory.size > memory.limit {
		t.Errorf("%d bytes of %d and %d", memory.size, a.size, b.size)
	}
	a.close()
	put(a, 4)
	if memory.size != b.size || a.size != 0 || len(a.kept) != 0 {
		t.Errorf("after the end of one %d bytes are kept, %d of the other's", memory.size, b.size)
	}
	put(b, 5)
	if b.close(); memory.size != 0 || memory.order.Len() != 0 {
		t.Errorf("%d bytes stay", memory.size)
	}
}

// A function that is deployed anew or removed gives its memory back.
func TestAnswersGiveMemoryBack(t *testing.T) {
	r := newRig(t, nil)
	to := &numbered{status: http.StatusOK}
	r.controller.dispatcher = to
	kept := func() int64 {
		r.answerMemory.mu.Lock()
		defer r.answerMemory.mu.Unlock()
		return r.answerMemory.size
	}
	r.deploy(t, cached("64Ki"))
	ask := func() {
		to.revision.Store(r.controller.deployed["mnist.openfaas-fn"].Revision)
		r.do("POST", "/function/mnist", "a")
	}
	if ask(); kept() == 0 {
		t.Fatal("nothing is kept")
	}
	if w := r.do("PUT", "/system/functions", deployment(func(d *types.FunctionDeployment) { cached("128Ki")(d) })); w.Code != http.StatusAccepted {
		t.Fatal(w.Body)
	}
	if n := kept(); n != 0 {
		t.Errorf("%d bytes of the revision before", n)
	}
	ask()
	r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`)
	if n := kept(); n != 0 {
		t.Errorf("%d bytes of a removed function", n)
	}
}
