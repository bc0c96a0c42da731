package async

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// Four slow functions have more requests than there is memory for. The requests of a fast
// one, small and large, are executed meanwhile.
func TestSlowFunctionsDelayNoOther(t *testing.T) {
	t.Parallel()
	functions := &deployed{by: map[string]map[string]string{"fast.openfaas-fn": nil}}
	for i := range 4 {
		functions.set(fmt.Sprintf("slow%d.openfaas-fn", i), nil)
	}
	release := make(chan struct{})
	var slow, fast atomic.Int64
	r := start(t, func(ctx context.Context, name string, _ *frame.Request) (*frame.Response, error) {
		if name == "fast.openfaas-fn" {
			fast.Add(1)
			return respond(200, ""), nil
		}
		slow.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return respond(200, ""), nil
	}, func(o *Options) { o.Functions, o.MaxHeld = functions, 64<<20 })
	body := strings.Repeat("x", 3<<19) // 2 MiB in the queue.
	const each = 25                    // 50 MiB of each slow function: two of them could fill the budget.
	for i := range 4 {
		for range each {
			r.enqueue(t, fmt.Sprintf("slow%d", i), body)
		}
		until(t, "it holds what it may", func() bool { return settled(&slow) })
	}
	began := time.Now()
	for range 200 {
		r.enqueue(t, "fast", "x")
	}
	for range 5 {
		r.enqueue(t, "fast", body)
	}
	until(t, "205 requests are executed while slow ones are", func() bool { return fast.Load() == 205 })
	t.Logf("205 requests took %v beside %d slow ones", time.Since(began), slow.Load())
	close(release)
	until(t, "the slow ones are executed, too", func() bool { return slow.Load() == 4*each })
}

// settled reports whether a number has not changed for a while.
func settled(n *atomic.Int64) bool {
	before := n.Load()
	time.Sleep(100 * time.Millisecond)
	return before > 0 && n.Load() == before
}

// Callbacks that are not answered hold nothing of their requests, so these keep no other request of their function
// waiting for memory. A dead letter has the whole request all the same.
func TestCallbacksHoldNoRequests(t *testing.T) {
	const n, size = 40, 1 << 20 // The function may hold 16 MiB, each request takes 2.3 MiB.
	release := make(chan struct{})
	to := recorder(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		http.Error(w, "no", http.StatusBadRequest)
	})
	var executed atomic.Int64
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		executed.Add(1)
		return respond(200, "ok"), nil
	}, func(o *Options) { o.MaxHeld, o.Callback.Timeout = 64<<20, time.Minute })
	body := strings.Repeat("x", size)
	for range n {
		if w := r.do("POST", "/async-function/echo", body, "X-Callback-Url", to); w.Code != 202 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	for deadline := time.Now().Add(time.Minute); executed.Load() < n && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	close(release)
	if executed.Load() < n {
		t.Fatalf("%d of %d requests are executed while callbacks are not answered", executed.Load(), n)
	}
	for _, l := range r.letters(t, n) {
		if l.Reason != retry.Undelivered || l.Size < size {
			t.Errorf("%+v", l)
		}
	}
}
