package async

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
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
