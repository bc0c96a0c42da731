package events

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Events arrive in their order, and the end of Run closes the channel.
func TestQueue(t *testing.T) {
	q := NewQueue()
	ctx, cancel := context.WithCancel(t.Context())
	go q.Run(ctx)
	for n := range 1000 {
		q.Push(cluster.Instance{InstanceSpec: cluster.InstanceSpec{Revision: uint64(n)}})
	}
	for n := range 1000 {
		if in := <-q.Out(); in.Revision != uint64(n) {
			t.Fatalf("event %d in place %d", in.Revision, n)
		}
	}
	cancel()
	if _, ok := <-q.Out(); ok {
		t.Error("the channel is not closed")
	}
}
