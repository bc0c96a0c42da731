package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// race returns the binary with the race detector. On a cluster it has no race detector,
// because the Kubernetes client takes minutes to build with it.
func race(t *testing.T) string {
	t.Helper()
	if onCluster != nil {
		return onCluster.Provider
	}
	binary, err := raceBinary()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// killPeriod is the time between kills of instances under load.
const killPeriod = time.Second / 2

// Twice a second one instance is killed under an open-loop load. Every request gets an
// answer, none gets another's, and requests that cannot be retried get an error that says
// so. One function has a second instance for retries, the other does not.
func TestInstancesKilledUnderLoad(t *testing.T) {
	providerTests.takeHere(t)
	kills := 30
	if testing.Short() {
		kills = 5
	}
	p := newPlace(t)
	p.slow(t)
	d := p.provider(t, race(t))
	// A busy machine carries this, too, and is not late: who is refused was lost.
	const rate, slo = 50, "10s"
	d.deploy(t, scaled(function("pair", "slow:latest", slo), "2", "2"))
	d.deploy(t, scaled(function("single", "slow:latest", slo), "1", "1"))
	d.awaitReady(t, "pair", 2)
	d.awaitReady(t, "single", 1)
	groups := p.cgroups()

	targets := []load.Target{identityTarget(d.function("pair"), rate), identityTarget(d.function("single"), rate)}
	count := p.underKills(t, d, load.Options{Targets: targets, Duration: max(5*time.Second, time.Duration(kills)*killPeriod), Seed: 1}, kills/4, math.MaxInt,
		map[string]uint64{"pair": 2, "single": 1}, http.StatusBadGateway, http.StatusServiceUnavailable)
	lost := 0
	for _, line := range d.lines() {
		if line["message"] == "lost an instance" {
			lost++
		}
	}
	t.Logf("%d of %d instances died with requests in flight", lost, count["pair"]+count["single"])
	d.awaitReady(t, "pair", 2)
	d.stop(t)
	gone(t, groups)
}

// outcome sums up a target's answers.
func outcome(r load.TargetResult) string {
	text := ""
	for _, code := range slices.Sorted(maps.Keys(r.Codes)) {
		text += fmt.Sprintf("%d: %d, ", code, r.Codes[code])
	}
	return fmt.Sprintf("%swrong %d, without answer %d, not sent %d", text, r.Wrong, r.Failed, r.Dropped)
}

// wantAnswered fails the test unless every request was sent and answered, by
// 200 with its own answer or by one of the codes.
func wantAnswered(t *testing.T, r load.TargetResult, codes ...int) {
	t.Helper()
	if r.Wrong > 0 || r.Failed > 0 || r.Dropped > 0 {
		t.Errorf("%s: %s; for example %v", r.Name, outcome(r), r.FirstError)
	}
	for code := range r.Codes {
		if code != http.StatusOK && !slices.Contains(codes, code) {
			t.Errorf("%s: %d requests were answered with %d", r.Name, r.Codes[code], code)
		}
	}
}

// wantFewRefused fails the test if more requests were refused than the kills explain. A
// kill loses the requests in flight and those that come until it is noticed: the rate times
// the latency. The 99th percentile counts as the latency because the machine may stall.
// Some more may have come late.
func wantFewRefused(t *testing.T, r load.TargetResult, kills int) {
	t.Helper()
	lost := float64(kills) * (1 + r.Offered*r.Latency.P99.Seconds())
	if most := lost + 0.05*float64(r.Requests); float64(r.Refused) > most {
		t.Errorf("%s: %d of %d requests were refused, more than the %.0f that %d kills explain", r.Name, r.Refused, r.Requests, most, kills)
	}
}

// underKills runs a load while instances of its functions are killed: at least enough of
// each function, at most most. It returns the number of kills by function. Answers must be
// good or have one of the codes, and few may not be good. instances has the number of
// instances of each function; the load's targets are in the order of the functions' names.
// On a stalled machine there is not an instance to kill each time; then the load runs
// again.
func (p *place) underKills(t *testing.T, d *daemon, o load.Options, enough, most int, instances map[string]uint64, codes ...int) map[string]int {
	t.Helper()
	const rounds = 5
	all := map[string]int{}
	functions := slices.Sorted(maps.Keys(instances))
	few := func(name string) bool { return all[name] < enough }
	for round := 0; round == 0 || round < rounds && slices.ContainsFunc(functions, few); round++ {
		ctx, cancel := context.WithCancel(t.Context())
		killed := make(chan map[string]int)
		go func() {
			killed <- p.killInTurn(ctx, func(name string, n int) bool { return all[name]+n < most && d.allServe(name, instances[name]) }, functions)
		}()
		result, err := load.Run(ctx, o)
		cancel()
		count := <-killed
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range functions {
			r := result.Targets[i]
			t.Logf("%s: %d killed; of %d requests %s; p50 %v, p99 %v, max %v", name, count[name], r.Requests, outcome(r), r.Latency.P50, r.Latency.P99, r.Latency.Max)
			wantAnswered(t, r, codes...)
			wantFewRefused(t, r, count[name])
			all[name] += count[name]
		}
		o.Seed++
	}
	for _, name := range functions {
		if few(name) {
			t.Errorf("%s: only %d instances were killed", name, all[name])
		}
	}
	return all
}

// allServe reports whether a number of a function's instances are ready. A function whose
// instance is killed again and again before it is ready counts as one that cannot start,
// and its requests are rightly refused. If a start takes seconds, all kills could be of
// this kind.
func (d *daemon) allServe(name string, instances uint64) bool {
	s, err := d.tryStatus(name)
	return err == nil && s.AvailableReplicas >= instances
}

// killInTurn kills one instance each killPeriod until ctx ends, of each of the functions
// in turn. It skips a function for which may returns false, given the kills so far. It
// returns the number of kills by function.
func (p *place) killInTurn(ctx context.Context, may func(name string, n int) bool, functions []string) map[string]int {
	killed := map[string]int{}
	ticker := time.Tick(killPeriod)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return killed
		case <-ticker:
		}
		name := functions[i%len(functions)]
		if !may(name, killed[name]) {
			continue
		}
		pids := p.instancesOf(name)
		if len(pids) > 0 && syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil {
			killed[name]++
		}
	}
}
