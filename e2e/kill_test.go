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

// race returns the binary with the race detector; on a cluster that is without, as
// its client takes minutes to build so.
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

// Every second one instance is killed, under an open loop of load: no request
// stays without an answer, none gets another's, and what could not be retried
// is told so. One function has a second instance to retry on, the other has
// not.
func TestInstancesKilledUnderLoad(t *testing.T) {
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
	count := p.underKills(t, d, load.Options{Targets: targets, Duration: time.Duration(kills) * time.Second, Seed: 1}, kills/4, math.MaxInt,
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

// outcome sums a target's answers up.
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

// wantFewRefused fails the test if more requests were refused than kills explain: a
// kill takes with it what is in flight, and what comes until it is noticed, which is
// the rate times the latency. On a machine that stands still now and then the
// latency is that of the slowest, so the 99th percentile counts. Some more may have
// come late.
func wantFewRefused(t *testing.T, r load.TargetResult, kills int) {
	t.Helper()
	lost := float64(kills) * (1 + r.Offered*r.Latency.P99.Seconds())
	if most := lost + 0.05*float64(r.Requests); float64(r.Refused) > most {
		t.Errorf("%s: %d of %d requests were refused, more than the %.0f that %d kills explain", r.Name, r.Refused, r.Requests, most, kills)
	}
}

// underKills runs a load while instances of its functions are killed, enough of each but
// not more than most, and returns how many were; the answers are to be good ones or to
// have one of the codes, and few not to be good. Instances is how many each function has;
// the load's targets are in the order of the functions' names. Where the machine stands still, there is
// not one to kill in every second, and the load is run again.
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
			killed <- p.killEverySecond(ctx, func(name string, n int) bool { return all[name]+n < most && d.allServe(name, instances[name]) }, functions)
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

// allServe reports whether so many instances of a function serve. One that is killed again
// and again before it does is a function that cannot be started, whose requests are
// rightly refused: where a start takes seconds, all kills might be of that kind.
func (d *daemon) allServe(name string, instances uint64) bool {
	s, err := d.tryStatus(name)
	return err == nil && s.AvailableReplicas >= instances
}

// killEverySecond kills one instance of any of the functions each second until
// ctx ends, in turn, while one more of it may be after so many, and returns how many of
// each it did.
func (p *place) killEverySecond(ctx context.Context, may func(name string, n int) bool, functions []string) map[string]int {
	killed := map[string]int{}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return killed
		case <-ticker.C:
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
