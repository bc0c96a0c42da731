package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// A provider that was killed under load and restarted restores its functions and takes over
// its instances: the same processes and no others.
func TestProviderKilledUnderLoad(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	address := freeAddress(t)
	first := p.providerAt(t, race(t), address)
	first.deploy(t, scaled(function("identity", "identity:latest", "3s"), "2", "2"))
	first.awaitReady(t, "identity", 2)
	before, groups := p.instances(), p.cgroups()
	deployed := first.status(t, "identity")

	done := beside(t, load.Options{Targets: []load.Target{identityTarget(first.function("identity"), 200)}, Duration: 6 * time.Second, Seed: 2})
	_, requests, _ := first.batches(t, "identity")
	first.await(t, patience, "load", func() bool { _, now, _ := first.batches(t, "identity"); return now > requests+100 })
	first.kill(t)
	if left := p.instances(); !slices.Equal(left, before) {
		t.Errorf("instances %v with the provider dead, %v before", left, before)
	}
	killed := time.Now()
	second := p.providerAt(t, race(t), address)
	second.awaitReady(t, "identity", 2)
	t.Logf("taken over %v after the kill", time.Since(killed))
	if now := p.instances(); !slices.Equal(now, before) {
		t.Errorf("instances %v after the takeover, %v before", now, before)
	}
	now := second.status(t, "identity")
	// A cluster's objects have times in whole seconds.
	if now.CreatedAt.Sub(deployed.CreatedAt).Abs() > time.Second || now.Image != deployed.Image || now.Annotations == nil || (*now.Annotations)["com.openfaas.slo.latency"] != "3s" {
		t.Errorf("the function is now %+v, it was %+v", now, deployed)
	}
	r := (<-done)[0]
	t.Logf("of %d requests %s", r.Requests, outcome(r))
	if r.Wrong > 0 || r.Good == 0 {
		t.Errorf("%s; for example %v", outcome(r), r.FirstError)
	}
	for code := range r.Codes {
		if code != http.StatusOK && code != http.StatusServiceUnavailable && code != http.StatusBadGateway {
			t.Errorf("%d requests were answered with %d", r.Codes[code], code)
		}
	}
	second.serves(t, identityTarget(second.function("identity"), 200))
	// The load has ended since; nothing came beside them.
	if now := p.instances(); !slices.Equal(now, before) {
		t.Errorf("instances %v after the load, %v before", now, before)
	}
	second.stop(t)
	gone(t, groups)
}

// serves fails the test unless a short load is answered, most of it in time.
func (d *daemon) serves(t *testing.T, targets ...load.Target) {
	t.Helper()
	// A machine that stands still may be late, but not each time.
	const rounds = 10
	for round := 1; ; round++ {
		result, err := load.Run(t.Context(), load.Options{Targets: targets, Duration: 2 * time.Second, Seed: 6})
		if err != nil {
			t.Fatal(err)
		}
		late := false
		for _, r := range result.Targets {
			t.Logf("%s, once it is served again: of %d requests %s", r.Name, r.Requests, outcome(r))
			wantAnswered(t, r, http.StatusServiceUnavailable)
			late = late || r.Good < r.Requests/2
		}
		if !late {
			return
		}
		if round == rounds {
			t.Fatalf("of %d loads each was answered less than half in time", rounds)
		}
	}
}

// A provider that is stopped right after its restart has not checked its instances yet. It
// still stops them, also those that were starting when the earlier provider was killed.
func TestStoppedRightAfterTheTakeover(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	first := p.provider(t, suite.binary)
	first.deploy(t, scaled(function("identity", "identity:latest", "5s"), "2", "2"))
	first.awaitReady(t, "identity", 1)
	groups := p.cgroups()
	first.kill(t)
	if len(p.instances()) == 0 {
		t.Error("no instance survived the provider")
	}
	p.provider(t, suite.binary).stop(t)
	gone(t, groups)
	// The functions are still there.
	third := p.provider(t, suite.binary)
	third.awaitReady(t, "identity", 2)
	third.stop(t)
	gone(t, groups)
}

// Only one provider can use a state directory or an address. The second one says so and
// does not disturb the first.
func TestTwoProviders(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	first := p.provider(t, suite.binary)
	first.deploy(t, scaled(function("identity", "identity:latest", "5s"), "1", "1"))
	first.awaitReady(t, "identity", 1)
	pids := p.instances()
	second := p.run(t, suite.binary, "provider", "--listen", "127.0.0.1:0")
	if code := second.exit(t, patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, second.logText(), p.state, "in use by another process")
	other := newPlace(t)
	third := other.run(t, suite.binary, "provider", "--listen", first.url[len("http://"):])
	if code := third.exit(t, patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantWords(t, third.logText(), first.url[len("http://"):], "address already in use")
	if now := p.instances(); !slices.Equal(now, pids) {
		t.Errorf("instances %v, %v before", now, pids)
	}
	if err := invokeIdentity(client(t), first.function("identity"), 9); err != nil {
		t.Error(err)
	}
	first.stop(t)
}

// If a bundle is removed while no provider runs, the next one serves all functions but that
// one.
func TestComesBackWithoutABundle(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	p.bundle(t, "other:latest", zooModel(t, "identity"))
	first := p.provider(t, suite.binary)
	first.deploy(t, function("stays", "identity:latest", "5s"))
	first.deploy(t, function("lost", "other:latest", "5s"))
	c := client(t)
	for i, name := range []string{"stays", "lost"} {
		if err := invokeIdentity(c, first.function(name), i); err != nil {
			t.Fatal(err)
		}
	}
	first.kill(t)
	if err := os.RemoveAll(filepath.Join(p.bundles, "other")); err != nil {
		t.Fatal(err)
	}
	second := p.provider(t, suite.binary)
	if err := invokeIdentity(c, second.function("stays"), 4); err != nil {
		t.Error(err)
	}
	a := do(t, c, http.MethodPost, second.function("lost"), []byte("{}"))
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("a function without its bundle: %d %s", a.status, a.body)
	}
	wantWords(t, a.body, "other:latest")
	second.await(t, patience, "the instances without a function to go", func() bool { return len(p.instancesOf("lost")) == 0 })
	second.signal(t, syscall.SIGINT)
	if code := second.exit(t, patience); code != 0 {
		t.Errorf("exit code %d after SIGINT", code)
	}
	second.nothingLeft(t)
}
