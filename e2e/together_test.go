package e2e

import (
	"flag"
	"slices"
	"sync"
	"testing"
)

// turns bounds how many tests of a kind run at the same time.
type turns chan struct{}

var (
	// checks are those of one provider, which mostly wait for instances, and waits those
	// that do hardly anything else; the longest among them begin with the first.
	checks, waits = make(turns, 4), make(turns, 8)
	// gatewayTests need the stock gateway, whose ports are fixed, and the network of this machine. Without the
	// right to make networks all tests of the gateway are among them.
	gatewayTests = lane{turn: make(turns, 1), left: new(sync.WaitGroup)}
	// providerTests need no gateway, find their processes by their own directories, and
	// bear a machine that others use. Most of a test's time is waiting, so two of them run beside one of
	// gatewayTests, and three when these are over. The longest begin first: none is left alone at the end.
	providerTests = lane{turn: make(turns, 2), after: &gatewayTests, longest: []string{
		"TestGuide/elsewhere", "TestGuide/default", "TestConformance", "TestRandomGraphs",
		"TestModelsOfStrangers", "TestModelServers", "TestALargeModelIsCut", "TestBenchCommandsPrintTheirResults",
	}, begun: new(sync.WaitGroup)}
)

// lane holds tests that run one after another, beside those of another lane.
type lane struct {
	turn turns
	// left counts the tests that have not ended, nil if nobody waits for them.
	left *sync.WaitGroup
	// after, if it is not nil, is the lane whose turns these tests take as well once it has no
	// tests left.
	after *lane
	// longest are the names of tests before whose turns no other gets one. begun counts those without one.
	longest []string
	begun   *sync.WaitGroup
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
	long := slices.Contains(l.longest, t.Name())
	if long {
		l.begun.Add(1)
	}
	t.Parallel()
	if l.begun != nil && !long {
		l.begun.Wait()
	}
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
	if long {
		l.begun.Done()
	}
	t.Cleanup(func() { <-turn })
}
