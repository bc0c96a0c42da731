package web_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/provider/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAGateCloses(t *testing.T) {
	g := web.NewGate()
	if !g.Enter() || !g.Enter() || g.Inside() != 2 || g.Closed() || closed(g.Shut()) {
		t.Fatalf("%d are inside an open gate", g.Inside())
	}
	g.Leave()
	empty := g.Close()
	if !g.Closed() || !closed(g.Shut()) || closed(empty) {
		t.Error("one is inside the closed gate")
	}
	if g.Enter() || g.Inside() != 1 {
		t.Errorf("%d are inside, one more than before", g.Inside())
	}
	g.Leave()
	if !closed(empty) || g.Inside() != 0 || g.Enter() {
		t.Error("the last has left")
	}
	if again := g.Close(); !closed(again) {
		t.Error("it closes once")
	}
}

func TestAnEmptyGateClosesAtOnce(t *testing.T) {
	g := web.NewGate()
	if !closed(g.Close()) {
		t.Error("somebody is inside")
	}
}

// When a gate signals that it is empty, no request is inside, however many enter and
// leave while it closes.
func TestNobodyIsInsideAClosedGate(t *testing.T) {
	for range 40 {
		g := web.NewGate()
		var inside atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for g.Enter() {
					inside.Add(1)
					inside.Add(-1)
					g.Leave()
				}
			})
		}
		all.Go(func() {
			<-g.Close()
			if n := inside.Load(); n != 0 {
				t.Errorf("%d are inside", n)
			}
		})
		all.Wait()
		if g.Inside() != 0 {
			t.Fatalf("%d never left", g.Inside())
		}
	}
}
