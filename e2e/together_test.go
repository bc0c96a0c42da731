package e2e

import (
	"flag"
	"sync"
	"testing"
)

// turns bounds how many tests of a kind run at the same time.
type turns chan struct{}

var (
	// checks are those of one provider, which mostly wait for instances, and waits those
	// that do hardly anything else; the longest among them begin with the first.
	checks, waits = make(turns, 4), make(turns, 8)
	// gatewayTests need the stock gateway: its ports are fixed.
	gatewayTests = lane{turn: make(turns, 1), left: new(sync.WaitGroup)}
	// providerTests need no gateway, find their processes by their own directories, and
	// bear a machine that others use; so each can run beside one of gatewayTests, on a core
	// of its own. When these are over it runs beside another of providerTests.
	providerTests = lane{turn: make(turns, 1), after: &gatewayTests}
)

// lane holds tests that run one after another, beside those of another lane.
type lane struct {
	turn turns
	// left counts the tests that have not ended, nil if nobody waits for them.
	left *sync.WaitGroup
	// after, if it is not nil, is the lane whose turns these tests take as well once it has no
	// tests left.
	after *lane
}

// boundedByTurns raises the flag for parallel tests to a value without effect: turns bound
// them instead.
func boundedByTurns() error { return flag.Set("test.parallel", "64") }

// take waits for a turn, which ends with the test.
func (all turns) take(t *testing.T) {
	t.Helper()
	t.Parallel()
	all <- struct{}{}
	t.Cleanup(func() { <-all })
}

// takeHere waits for a turn, on one machine. On a cluster, a test that ends removes all
// functions.
func (l *lane) takeHere(t *testing.T) {
	t.Helper()
	if onCluster != nil {
		return
	}
	if l.left != nil { // All tests come here before the first one goes on.
		l.left.Add(1)
		t.Cleanup(l.left.Done)
	}
	t.Parallel()
	turn, other, over := l.turn, l.turn, make(chan struct{})
	if l.after != nil {
		other = l.after.turn
		go func() {
			l.after.left.Wait()
			close(over)
		}()
	}
	select {
	case turn <- struct{}{}:
	case <-over:
		select {
		case turn <- struct{}{}:
		case other <- struct{}{}:
			turn = other
		}
	}
	t.Cleanup(func() { <-turn })
}
