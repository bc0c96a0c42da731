package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// list returns the provider's list of functions.
func (d *daemon) list(t *testing.T) []types.FunctionStatus {
	t.Helper()
	a := do(t, d.own, http.MethodGet, d.url+"/system/functions", nil)
	var all []types.FunctionStatus
	if err := json.Unmarshal([]byte(a.body), &all); err != nil || a.status != http.StatusOK {
		t.Fatalf("list: %d %s", a.status, a.body)
	}
	return all
}

func names(list []types.FunctionStatus) []string {
	var all []string
	for _, f := range list {
		all = append(all, f.Name)
	}
	slices.Sort(all)
	return all
}

// A provider does not start with a truncated store file. It names the file and the fix, and
// leaves the file and the running instances alone.
func TestStoreCutOff(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	first := p.provider(t, suite.binary)
	for i := range 20 {
		first.deploy(t, scaled(ordinary(fmt.Sprintf("f%d", i), "cat"), "0", "1"))
	}
	first.kill(t)
	file := filepath.Join(p.state, "faas-infer.db")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, keep := range map[string]int{"half": len(whole) / 2, "one page": 4096, "within a page": len(whole)/2 + 100, "few bytes": 10, "nothing": 0} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, whole[:keep], 0o600); err != nil {
				t.Fatal(err)
			}
			d := p.run(t, suite.binary, "provider", "--listen", "127.0.0.1:0")
			if code := d.exit(t, patience); code != 1 {
				t.Errorf("exit code %d", code)
			}
			wantWords(t, d.logText(), file, "damaged", "mv ")
			if left, err := os.ReadFile(file); err != nil || len(left) != keep {
				t.Errorf("the file has %d bytes, it had %d: %v", len(left), keep, err)
			}
		})
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	again := p.provider(t, suite.binary)
	if n := len(again.list(t)); n != 20 {
		t.Errorf("%d functions with the whole file", n)
	}
	again.stop(t)
}

// On a full disk, changes that must be stored are refused with an answer that says so.
// Running functions keep serving, no stored state is lost, and all works again once the
// disk has room.
func TestFullDisk(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	if !p.smallDisk(t, "24m") {
		t.Log("no small file system can be mounted here, for lack of rights; the test does nothing")
		return
	}
	p.extra = append(p.extra, "TMPDIR="+p.state)
	d := p.provider(t, suite.binary)
	d.deploy(t, scaled(ordinary("before", "cat"), "1", "1"))
	d.awaitReady(t, "before", 1)
	secret := func(name string) answer {
		text := fmt.Sprintf(`{"name":%q,"value":"of no importance"}`, name)
		return do(t, client(t), http.MethodPost, d.url+"/system/secrets", []byte(text))
	}
	if a := secret("kept"); a.status != http.StatusAccepted {
		t.Fatalf("secret: %d %s", a.status, a.body)
	}
	free := p.fillDisk(t)
	refused := func(what string, a answer) {
		t.Helper()
		t.Logf("%s: %d %s", what, a.status, a.body)
		if a.status < http.StatusInternalServerError || len(a.body) < 10 {
			t.Errorf("%s on a full disk: %d %s", what, a.status, a.body)
		}
	}
	refused("secret", secret("lost"))
	// The store's file has free pages for a small change, or it has not: what is
	// accepted must be there afterwards, and what is not must not.
	want := []string{"before"}
	if a := d.put(t, http.MethodPost, ordinary("small", "cat")); a.status == http.StatusAccepted {
		want = append(want, "small")
	} else {
		refused("small deployment", a)
	}
	large := ordinary("large", "cat")
	large.Annotations = &map[string]string{"padding": strings.Repeat("x", 512<<10)}
	refused("deployment", d.put(t, http.MethodPost, large))
	refused("async", do(t, client(t), http.MethodPost, d.url+"/async-function/before", make([]byte, 100_000)))
	if a := do(t, client(t), http.MethodPost, d.function("before"), []byte("x")); a.body != "x" {
		t.Errorf("what runs answers %d %s", a.status, a.body)
	}
	if got := names(d.list(t)); !slices.Equal(got, want) {
		t.Errorf("listed are %v, not %v", got, want)
	}
	free()
	if a := secret("after"); a.status != http.StatusAccepted {
		t.Errorf("secret with room again: %d %s", a.status, a.body)
	}
	d.deploy(t, scaled(ordinary("after", "cat"), "1", "1"))
	d.awaitReady(t, "after", 1)
	d.await(t, patience, "an asynchronous request to be accepted with room again", func() bool {
		return do(t, client(t), http.MethodPost, d.url+"/async-function/after", []byte("x")).status == http.StatusAccepted
	})
	d.kill(t)
	second := p.provider(t, suite.binary)
	want = append(want, "after")
	slices.Sort(want)
	if got := names(second.list(t)); !slices.Equal(got, want) {
		t.Errorf("after a restart listed are %v, not %v", got, want)
	}
	a := do(t, client(t), http.MethodGet, second.url+"/system/secrets", nil)
	var secrets []types.Secret
	if err := json.Unmarshal([]byte(a.body), &secrets); err != nil || len(secrets) != 2 {
		t.Errorf("secrets: %s", a.body)
	}
	second.stop(t)
}

// smallDisk mounts a separate file system on the state directory. It returns false if that
// is not allowed.
func (p *place) smallDisk(t *testing.T, size string) bool {
	t.Helper()
	if err := os.MkdirAll(p.state, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", p.state, "tmpfs", 0, "size="+size); errors.Is(err, syscall.EPERM) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.killAll(t)
		if err := syscall.Unmount(p.state, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}

// fillDisk fills the file system of the state directory until the returned function is
// called.
func (p *place) fillDisk(t *testing.T) (free func()) {
	t.Helper()
	name := filepath.Join(p.state, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// Concurrent deployments of one name do not mix: the shown deployment is the running one,
// and it is one of them.
func TestOneNameDeployedTwiceAtOnce(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, race(t))
	deployments := map[string]types.FunctionDeployment{"model": scaled(function("same", "identity:latest", "2s"), "1", "1")}
	for i := range 4 {
		f := scaled(ordinary("same", "env"), "1", "1")
		f.EnvVars = map[string]string{"version": fmt.Sprint(i)}
		deployments[fmt.Sprint(i)] = f
	}
	for range 3 {
		var all sync.WaitGroup
		for _, name := range slices.Sorted(maps.Keys(deployments)) {
			for range 3 {
				all.Go(func() {
					text, _ := json.Marshal(deployments[name])
					a, err := try(client(t), http.MethodPost, d.url+"/system/functions", text)
					if err != nil || a.status != http.StatusAccepted && a.status != http.StatusConflict {
						t.Errorf("%d %s, %v", a.status, a.body, err)
					}
				})
			}
		}
		all.Wait()
		shown := d.status(t, "same")
		version, isOrdinary := shown.EnvVars["version"]
		d.await(t, patience, "one instance, of what is shown", func() bool {
			if s := d.status(t, "same"); s.Replicas != 1 || s.AvailableReplicas != 1 || len(p.instances()) != 1 {
				return false
			}
			if !isOrdinary {
				return invokeIdentity(client(t), d.function("same"), 3) == nil
			}
			a := do(t, client(t), http.MethodPost, d.function("same"), nil)
			return variables(a.body)["version"] == version
		})
	}
	d.stop(t)
}
