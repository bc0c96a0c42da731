package e2e

import (
	"sync"
	"syscall"
	"testing"
	"time"
)

// What has been accepted when SIGTERM comes is answered before the provider
// leaves.
func TestDrain(t *testing.T) {
	p := newPlace(t)
	p.slow(t)
	d := p.provider(t, race(t))
	// One by one, these take about half a second.
	d.deploy(t, scaled(function("slow", "slow:latest", "10s", "infer.policy", "one-to-one"), "1", "1"))
	d.awaitReady(t, "slow", 1)
	groups := p.cgroups()
	c := client(t)
	var all sync.WaitGroup
	const requests = 100
	for i := range requests {
		all.Go(func() {
			if err := invokeIdentity(c, d.function("slow"), i); err != nil {
				t.Error(err)
			}
		})
	}
	d.await(t, 20*time.Second, "all requests to be in flight", func() bool {
		f := d.metrics(t)["faas_infer_requests_in_flight"]
		_, executed, _ := d.batches(t, "slow")
		return f.GetMetric()[0].GetGauge().GetValue()+float64(executed) >= requests
	})
	d.signal(t, syscall.SIGTERM)
	all.Wait()
	if code := d.exit(t, 40*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d.nothingLeft(t)
	gone(t, groups)
}

// "faas-infer up" that is killed takes the gateway with it, which would keep
// its ports; started again it takes over the instances.
func TestUpKilled(t *testing.T) {
	p := newPlace(t)
	first := p.up(t)
	if err := invokeIdentity(first.http, throughGateway("identity"), 1); err != nil {
		t.Fatal(err)
	}
	before, groups := p.instances(), p.cgroups()
	if len(before) == 0 {
		t.Fatal("no instance after a request")
	}
	first.kill(t)
	await(t, 10*time.Second, "the gateway to go", func() bool { return len(p.processes()) == len(before) })
	second := p.up(t)
	if err := invokeIdentity(second.http, throughGateway("identity"), 2); err != nil {
		t.Error(err)
	}
	// Deploying stack.yml again then replaces them, one by one.
	second.awaitLine(t, "took over a running instance", 10*time.Second)
	second.stop(t)
	gone(t, groups)
}
