package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
)

// deployAll deploys functions, several at a time.
func (d *daemon) deployAll(t *testing.T, functions []types.FunctionDeployment) {
	t.Helper()
	c := client(t)
	work := make(chan types.FunctionDeployment)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for f := range work {
				text, _ := json.Marshal(f)
				if a, err := try(c, http.MethodPost, d.url+"/system/functions", text); err != nil || a.status != http.StatusAccepted {
					t.Errorf("deploy %s: %d %s, %v", f.Service, a.status, a.body, err)
				}
			}
		})
	}
	for _, f := range functions {
		work <- f
	}
	close(work)
	all.Wait()
}

// listing returns the list's length, the shortest of several times, and the provider's
// memory. Tests print the last two and do not check them because the machine is shared.
func (d *daemon) listing(t *testing.T) (n int, took time.Duration, mib float64) {
	t.Helper()
	took = time.Hour
	for range 5 {
		began := time.Now()
		n = len(d.list(t))
		took = min(took, time.Since(began))
	}
	return n, took, d.gauge(t, "process_resident_memory_bytes") / (1 << 20)
}

// A hundred ordinary functions with one instance each and a hundred models without
// instances are all listed, and all answer.
func TestTwoHundredFunctions(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, suite.binary)
	var functions []types.FunctionDeployment
	for i := range 100 {
		functions = append(functions, ordinary(fmt.Sprintf("ordinary%d", i), "cat"), function(fmt.Sprintf("model%d", i), "identity:latest", "2s"))
	}
	began := time.Now()
	d.deployAll(t, functions)
	deployed := time.Since(began)
	d.await(t, 2*patience, "all instances", func() bool {
		ready := 0
		for _, f := range d.list(t) {
			if f.AvailableReplicas > 0 && f.EnvProcess != "" {
				ready++
			}
		}
		return ready == 100
	})
	ready := time.Since(began)
	n, took, mib := d.listing(t)
	t.Logf("%d functions deployed within %v, ready after %v; listed within %v; the provider takes %.0f MiB", n, deployed, ready, took, mib)
	if n != 200 {
		t.Errorf("%d functions are listed", n)
	}
	c := client(t)
	for i := 0; i < 100; i += 7 {
		if a := do(t, c, http.MethodPost, d.function(fmt.Sprintf("ordinary%d", i)), []byte("x")); a.body != "x" {
			t.Errorf("ordinary%d: %d %s", i, a.status, a.body)
		}
	}
	if err := invokeIdentity(c, d.function("model50"), 50); err != nil {
		t.Error(err)
	}
	groups := p.cgroups()
	d.stop(t)
	gone(t, groups)
}

// Ten thousand functions are listed, also after the provider was killed.
func TestTenThousandFunctions(t *testing.T) {
	providerTests.takeHere(t)
	const many = 10_000
	p := newPlace(t)
	p.inMemory(t)
	d := p.provider(t, suite.binary)
	var functions []types.FunctionDeployment
	for i := range many {
		functions = append(functions, scaled(ordinary(fmt.Sprintf("f%d", i), "cat"), "0", "2"))
	}
	began := time.Now()
	d.deployAll(t, functions)
	deployed := time.Since(began)
	n, took, mib := d.listing(t)
	t.Logf("%d functions deployed within %v; listed within %v; the provider takes %.0f MiB", n, deployed, took, mib)
	if n != many {
		t.Errorf("%d functions are listed", n)
	}
	d.kill(t)
	began = time.Now()
	second := p.provider(t, suite.binary)
	t.Logf("serving again %v after the kill", time.Since(began))
	if n := len(second.list(t)); n != many {
		t.Errorf("%d functions are listed after the kill", n)
	}
	if a := do(t, client(t), http.MethodPost, second.function("f9999"), []byte("x")); a.body != "x" {
		t.Errorf("f9999: %d %s", a.status, a.body)
	}
	second.stop(t)
}

// inMemory puts the place's state into memory if there is a file system for that. Otherwise
// the test would mostly measure the disk: each of thousands of changes waits for it.
func (p *place) inMemory(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fi-e2e-")
	if err != nil {
		return
	}
	t.Cleanup(func() {
		p.killAll(t)
		os.RemoveAll(dir)
	})
	p.state = dir
}
