package e2e

import (
	"flag"
	"testing"
)

// turns bounds how many tests of a kind run at the same time.
type turns chan struct{}

var (
	// checks are those of one provider, which mostly wait for instances, and waits those
	// that do hardly anything else; the longest among them begin with the first.
	checks, waits = make(turns, 4), make(turns, 8)
	// gatewayTests are long ones that need the stock gateway: its ports are fixed.
	gatewayTests = make(turns, 1)
	// providerTests need no gateway, find their processes by their own directories, and
	// judge no times; so each can run beside one of gatewayTests, on a core of its own.
	providerTests = make(turns, 1)
)

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

// takeHere is take on one machine. On a cluster, a test that ends removes all functions.
func (all turns) takeHere(t *testing.T) {
	t.Helper()
	if onCluster == nil {
		all.take(t)
	}
}
