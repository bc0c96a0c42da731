package e2e

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
)

// running lists the processes with exactly these arguments, of any parent.
func running(arguments ...string) []int {
	want := append([]byte(strings.Join(arguments, "\x00")), 0)
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, file := range files {
		// It may be gone by now, which makes it empty.
		if text, _ := os.ReadFile(file); bytes.Equal(text, want) {
			var pid int
			fmt.Sscanf(file, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// sleeper returns a function whose process only sleeps, and the process's arguments, which
// are unique on the machine.
func sleeper() (types.FunctionDeployment, []string) {
	arguments := []string{"sleep", fmt.Sprintf("%d.%d", 3000+rand.IntN(1<<20), os.Getpid())}
	return scaled(ordinary("sleeper", strings.Join(arguments, " ")), "1", "1"), arguments
}

// echoTarget returns a load of distinct bodies on a function that echoes them.
func echoTarget(url string, rate float64) load.Target {
	body := func(i int) []byte { return fmt.Appendf(nil, "request %d", i) }
	return load.Target{Name: "echo", URL: url, Rate: rate, Arrivals: load.Poisson, Body: body,
		Verify: func(i int, got []byte) error {
			if !bytes.Equal(got, body(i)) {
				return fmt.Errorf("request %d got another's answer: %q", i, got)
			}
			return nil
		}}
}

// A provider that was killed under load restores all its functions and takes over the
// instances of both kinds: the same processes and no others. After it stops in order, none
// of them is left.
func TestProviderKilledWithOrdinaryFunctions(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	address := freeAddress(t)
	first := p.providerAt(t, race(t), address)
	first.deploy(t, scaled(function("model", "identity:latest", "2s"), "1", "1"))
	first.deploy(t, scaled(ordinary("echo", "cat"), "2", "2"))
	f, sleeps := sleeper()
	first.deploy(t, f)
	for name, n := range map[string]uint64{"model": 1, "echo": 2, "sleeper": 1} {
		first.awaitReady(t, name, n)
	}
	before, groups := p.instances(), p.cgroups()
	if len(before) != 4 {
		t.Fatalf("%d instances", len(before))
	}
	asking := client(t)
	var asked sync.WaitGroup
	t.Cleanup(asked.Wait)
	asked.Go(func() { _, _ = try(asking, http.MethodPost, first.function("sleeper"), nil) })
	await(t, patience, "the sleeper to sleep", func() bool { return len(running(sleeps...)) == 1 })

	targets := []load.Target{identityTarget(first.function("model"), 60), echoTarget(first.function("echo"), 40)}
	done := beside(t, load.Options{Targets: targets, Duration: 8 * time.Second, Seed: 9})
	_, requests, _ := first.batches(t, "model")
	first.await(t, patience, "load", func() bool { _, now, _ := first.batches(t, "model"); return now > requests+60 })
	first.kill(t)
	if left := p.instances(); !slices.Equal(left, before) {
		t.Errorf("instances %v with the provider dead, %v before", left, before)
	}
	killed := time.Now()
	second := p.providerAt(t, race(t), address)
	for name, n := range map[string]uint64{"model": 1, "echo": 2, "sleeper": 1} {
		second.awaitReady(t, name, n)
	}
	t.Logf("taken over %v after the kill", time.Since(killed))
	for i, r := range <-done {
		t.Logf("%s: of %d requests %s", r.Name, r.Requests, outcome(r))
		if r.Wrong > 0 || r.Good == 0 {
			t.Errorf("%s: %s; for example %v", r.Name, outcome(r), r.FirstError)
		}
		for code := range r.Codes {
			if code != http.StatusOK && code != http.StatusServiceUnavailable && code != http.StatusBadGateway {
				t.Errorf("%d: %d requests were answered with %d", i, r.Codes[code], code)
			}
		}
	}
	second.serves(t, identityTarget(second.function("model"), 60), echoTarget(second.function("echo"), 40))
	if now := p.instances(); !slices.Equal(now, before) {
		t.Errorf("instances %v after the load, %v before", now, before)
	}
	if got := do(t, client(t), http.MethodPost, second.function("echo"), []byte("still there")); got.body != "still there" {
		t.Errorf("%d %s", got.status, got.body)
	}
	second.stop(t)
	gone(t, groups)
	if left := running(sleeps...); len(left) > 0 {
		t.Errorf("the sleeper's process %v is left", left)
	}
}

// Instances of an ordinary function are killed again and again under load. Every request
// gets its own answer or an error that reports the loss. The children of killed instances
// end too.
func TestOrdinaryInstancesKilledUnderLoad(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, race(t))
	d.deploy(t, scaled(ordinary("pair", "cat"), "2", "2"))
	d.deploy(t, scaled(ordinary("single", "cat"), "1", "1"))
	f, sleeps := sleeper()
	d.deploy(t, f)
	for name, n := range map[string]uint64{"pair": 2, "single": 1, "sleeper": 1} {
		d.awaitReady(t, name, n)
	}
	groups := p.cgroups()
	asking, answered := client(t), make(chan answer, 1)
	go func() {
		a, _ := try(asking, http.MethodPost, d.function("sleeper"), nil)
		answered <- a
	}()
	d.await(t, patience, "the sleeper to sleep", func() bool { return len(running(sleeps...)) == 1 })
	for _, pid := range p.instancesOf("sleeper") {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if a := <-answered; a.status != http.StatusBadGateway {
		t.Errorf("the request of the killed instance was answered %d %s", a.status, a.body)
	}
	d.await(t, patience, "the killed instance's process to go", func() bool { return len(running(sleeps...)) == 0 })

	most := math.MaxInt
	codes := []int{http.StatusBadGateway, http.StatusServiceUnavailable}
	if onCluster != nil {
		// A kubelet starts a container again at once when it dies for the first time, and
		// after a pause later on; of the third in a row requests are told at once.
		most = 2
		// There the container's other processes may be killed a moment before the
		// watchdog, which then tells of it.
		codes = append(codes, http.StatusInternalServerError)
	}
	targets := []load.Target{echoTarget(d.function("pair"), 40), echoTarget(d.function("single"), 20)}
	p.underKills(t, d, load.Options{Targets: targets, Duration: 5 * time.Second, Seed: 11}, 2, most, map[string]uint64{"pair": 2, "single": 1}, codes...)
	d.awaitReady(t, "pair", 2)
	d.awaitReady(t, "single", 1)
	d.stop(t)
	gone(t, groups)
}
