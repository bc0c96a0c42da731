package e2e

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// After SIGTERM, or when its terminal closes, the provider answers all accepted requests before it
// exits.
func TestDrain(t *testing.T) {
	providerTests.takeHere(t)
	if signal.Ignored(syscall.SIGHUP) { // Under nohup, and what this process starts would ignore it, too.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		t.Cleanup(func() { signal.Ignore(syscall.SIGHUP) })
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) { testDrain(t, s) })
	}
}

func testDrain(t *testing.T, stop syscall.Signal) {
	t.Helper()
	p := newPlace(t)
	p.slow(t)
	d := p.provider(t, race(t))
	// One by one, these take about half a second.
	d.deploy(t, scaled(function("slow", "slow:latest", "10s", "infer.policy", "one-to-one"), "1", "1"))
	d.awaitReady(t, "slow", 1)
	groups := p.cgroups()
	c := client(t)
	var all sync.WaitGroup
	var answered atomic.Int64
	const requests = 100
	for i := range requests {
		all.Go(func() {
			if err := invokeIdentity(c, d.function("slow"), i); err != nil {
				t.Error(err)
			}
			answered.Add(1)
		})
	}
	d.await(t, patience, "all requests to be in flight", func() bool {
		// In this order no request counts twice.
		done := answered.Load()
		f := d.metrics(t)["faas_infer_requests_in_flight"]
		return int64(f.GetMetric()[0].GetGauge().GetValue())+done >= requests
	})
	d.signal(t, stop)
	all.Wait()
	if code := d.exit(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	d.nothingLeft(t)
	gone(t, groups)
}

// If "faas-infer up" is killed, the gateway ends too; otherwise it would keep its ports. A
// new "faas-infer up" takes over the instances.
func TestUpKilled(t *testing.T) {
	p := gatewayPlace(t)
	first := p.upBehind(t)
	if err := invokeIdentity(first.http, first.through("identity"), 1); err != nil {
		t.Fatal(err)
	}
	groups := p.cgroups()
	if len(p.instances()) == 0 {
		t.Fatal("no instance after a request")
	}
	first.kill(t)
	await(t, patience, "the gateway to go", func() bool { return len(p.processes()) == len(p.instances()) })
	second := p.upBehind(t)
	if err := invokeIdentity(second.http, second.through("identity"), 2); err != nil {
		t.Error(err)
	}
	// Deploying stack.yml again then replaces them, one by one.
	second.awaitLine(t, "took over a running instance", patience)
	second.stop(t)
	gone(t, groups)
}
