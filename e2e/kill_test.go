package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/load"
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
	const rate = 100
	d.deploy(t, scaled(function("pair", "slow:latest", "3s"), "2", "2"))
	d.deploy(t, scaled(function("single", "slow:latest", "3s"), "1", "1"))
	d.awaitReady(t, "pair", 2)
	d.awaitReady(t, "single", 1)
	groups := p.cgroups()

	ctx, cancel := context.WithCancel(t.Context())
	killed := make(chan map[string]int)
	go func() { killed <- p.killEverySecond(ctx, "pair", "single") }()
	targets := []load.Target{identityTarget(d.function("pair"), rate), identityTarget(d.function("single"), rate)}
	result, err := load.Run(ctx, load.Options{Targets: targets, Duration: time.Duration(kills) * time.Second, Seed: 1})
	cancel()
	count := <-killed
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"pair", "single"} {
		r := result.Targets[i]
		t.Logf("%s: %d killed; of %d requests %s; p50 %v, p99 %v, max %v", name, count[name], r.Requests, outcome(r), r.Latency.P50, r.Latency.P99, r.Latency.Max)
		wantAnswered(t, r, http.StatusBadGateway, http.StatusServiceUnavailable)
		wantFewRefused(t, r, count[name])
		if count[name] < kills/4 {
			t.Errorf("%s: only %d instances were killed", name, count[name])
		}
	}
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

// killEverySecond kills one instance of any of the functions each second until
// ctx ends, in turn, and returns how many of each it did.
func (p *place) killEverySecond(ctx context.Context, functions ...string) map[string]int {
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
		pids := p.instancesOf(name)
		if len(pids) > 0 && syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil {
			killed[name]++
		}
	}
}
