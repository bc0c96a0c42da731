package objects

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider"
)

// Deployments, updates, scalings and deletions at one replica take effect at all. No
// replica deploys again what it has deployed itself.
func TestAChangeAtOneReplicaIsSeenAtAll(t *testing.T) {
	a, b := start(t, true), start(t, false)
	a.must(t, 202, "POST", "/system/functions", deployment("shared", "shared:1", nil))
	began := time.Now()
	b.invoked(t, "shared", "shared:1")
	t.Logf("seen at the other after %v", time.Since(began))
	b.must(t, 202, "PUT", "/system/functions", deployment("shared", "shared:2", nil))
	a.invoked(t, "shared", "shared:2")
	eventually(t, func() string {
		if x, y := a.revision("shared.openfaas-fn"), b.revision("shared.openfaas-fn"); x != y {
			return fmt.Sprintf("revisions %d and %d", x, y)
		}
		return ""
	})
	a.must(t, 202, "POST", "/system/scale-function/shared", `{"replicas":3}`)
	eventually(t, func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := b.scaled["shared.openfaas-fn"]; n != 3 {
			return fmt.Sprintf("scaled to %d", n)
		}
		return ""
	})
	if a.counted() != 2 || b.counted() != 2 {
		t.Errorf("deployed %d and %d times, not twice each", a.counted(), b.counted())
	}
	// What comes later has it too, scale and all.
	c := start(t, false)
	c.invoked(t, "shared", "shared:2")
	if f := c.running("shared.openfaas-fn"); f.Replicas != 3 || f.Revision != a.revision(f.Name) {
		t.Errorf("restored as %+v", f)
	}
	b.must(t, 202, "DELETE", "/system/functions", `{"functionName":"shared"}`)
	for _, r := range []*replica{a, b, c} {
		r.absent(t, "shared")
	}
	kubectl(t, "", "wait", "--for=delete", "fn/shared", "-n", "openfaas-fn", "--timeout=120s")
}

// Two replicas get different deployments of one function again and again. In the end all
// have the object's state.
func TestDeploymentsAtTheSameTime(t *testing.T) {
	a, b := start(t, true), start(t, false)
	var all sync.WaitGroup
	for i, r := range []*replica{a, b} {
		all.Go(func() {
			for n := range 20 {
				w := r.do("POST", "/system/functions", deployment("busy", fmt.Sprintf("busy:%d-%d", i, n), nil))
				if w.Code != 202 && w.Code != 409 {
					t.Errorf("deploying: %d %s", w.Code, w.Body)
				}
				w = r.do("POST", "/system/scale-function/busy", fmt.Sprintf(`{"replicas":%d}`, n%4))
				if w.Code != 202 && w.Code != 409 && w.Code != 404 {
					t.Errorf("scaling: %d %s", w.Code, w.Body)
				}
			}
		})
	}
	all.Wait()
	eventually(t, func() string {
		f, ok := a.objects.Lookup("busy.openfaas-fn")
		if !ok {
			return "the function is not there"
		}
		for _, r := range []*replica{a, b} {
			if got := r.do("POST", "/function/busy", "x").Body.String(); got != f.Spec.Image || fmt.Sprint(r.revision("busy.openfaas-fn")) != f.Annotations["faas-infer.dev/revision"] {
				return fmt.Sprintf("%s at revision %d runs, the object has %s %v", got, r.revision("busy.openfaas-fn"), f.Spec.Image, f.Annotations)
			}
		}
		return ""
	})
	b.must(t, 202, "DELETE", "/system/functions", `{"functionName":"busy"}`)
	a.absent(t, "busy")
}

// A function that is deleted and deployed again at once, at one replica or another, stays.
func TestDeletedAndDeployedAgain(t *testing.T) {
	a, b := start(t, true), start(t, false)
	for n := range 10 {
		image := fmt.Sprintf("again:%d", n)
		a.must(t, 202, "POST", "/system/functions", deployment("again", image, nil))
		b.invoked(t, "again", image)
		r := []*replica{a, b}[n%2]
		r.must(t, 202, "DELETE", "/system/functions", `{"functionName":"again"}`)
		if w := r.do("POST", "/function/again", "x"); w.Code != 404 {
			t.Errorf("deleted and there: %d %s", w.Code, w.Body)
		}
	}
	a.must(t, 202, "POST", "/system/functions", deployment("again", "last", nil))
	a.invoked(t, "again", "last")
	b.invoked(t, "again", "last")
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"again"}`)
	a.absent(t, "again")
	b.absent(t, "again")
}

// Requests cause no requests to the API server, whether the function exists or not.
func TestInvocationsAskNothing(t *testing.T) {
	a := start(t, true)
	a.must(t, 202, "POST", "/system/functions", deployment("quiet", "quiet:1", nil))
	a.shows("quiet.openfaas-fn", provider.Status{Replicas: 1, AvailableReplicas: 1}, "")
	eventually(t, func() string { return stillTelling(t, "quiet", "Available", "1") })
	// What the replica asks for other reasons comes now and then.
	least := int64(math.MaxInt64)
	for try := 0; try < tries && least != 0; try++ {
		before := a.asked.Load()
		for range 1000 {
			a.must(t, 200, "POST", "/function/quiet", "x")
			a.must(t, 404, "POST", "/function/nobody", "x")
		}
		least = min(least, a.asked.Load()-before)
	}
	if least != 0 {
		t.Errorf("2000 requests asked %d things of the API server", least)
	}
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"quiet"}`)
}

// stillTelling returns why a function's status does not show a value yet, or "".
func stillTelling(t *testing.T, name, what, want string) string {
	t.Helper()
	path := map[string]string{"Available": "{.status.availableReplicas}", "Replicas": "{.status.replicas}",
		"Accepted": `{.status.conditions[?(@.type=="Accepted")].status}`, "Why": `{.status.conditions[?(@.type=="Accepted")].message}`,
		"Ready": `{.status.conditions[?(@.type=="Ready")].status}`, "Missing": `{.status.conditions[?(@.type=="Ready")].message}`}[what]
	got, err := cluster.Kubectl(t.Context(), "", "get", "fn", name, "-n", "openfaas-fn", "-o", "jsonpath="+path)
	if err != nil || !strings.Contains(got, want) {
		return fmt.Sprintf("%s of %s is %q, %v, not %q", what, name, got, err, want)
	}
	return ""
}

// Only the leader writes the status and the number of pods, when they change and at most once
// a second. Status and an event say what is missing.
func TestStatusIsTold(t *testing.T) {
	a, b := start(t, true), start(t, false)
	a.must(t, 202, "POST", "/system/functions", deployment("told", "told:1", nil))
	b.invoked(t, "told", "told:1")
	const full = "told.openfaas-fn"
	for _, r := range []*replica{a, b} {
		r.shows(full, provider.Status{Replicas: 2, AvailableReplicas: 1}, "no node has 4 free CPUs")
	}
	eventually(t, func() string {
		return stillTelling(t, "told", "Missing", "1 of 2 instances are ready: no node has 4 free CPUs")
	})
	eventually(t, func() string {
		out := kubectl(t, "", "get", "events", "-n", "openfaas-fn", "--field-selector=involvedObject.name=told", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "no node has 4 free CPUs") {
			return "events: " + out
		}
		return ""
	})
	writes, began := a.writes.Load(), time.Now()
	change := time.Tick(10 * time.Millisecond)
	for n := range uint64(300) {
		a.shows(full, provider.Status{Replicas: 2 + n, AvailableReplicas: n}, "")
		<-change
	}
	if n, most := a.writes.Load()-writes, 2*(int64(time.Since(began)/time.Second)+2); n > most || n == 0 {
		t.Errorf("%d writes in %v", n, time.Since(began))
	}
	if n := b.writes.Load(); n != 0 {
		t.Errorf("who does not lead has written %d times", n)
	}
	// Who leads next, does it.
	a.leading.Store(false)
	b.leading.Store(true)
	b.shows(full, provider.Status{Replicas: 7, AvailableReplicas: 7}, "")
	eventually(t, func() string { return stillTelling(t, "told", "Ready", "True") })
	if out := kubectl(t, "", "get", "fn", "told", "-n", "openfaas-fn"); !strings.Contains(out, "told:1") || !strings.Contains(out, "50ms") {
		t.Errorf("kubectl shows %s", out)
	}
	b.must(t, 202, "DELETE", "/system/functions", `{"functionName":"told"}`)
}

// A deployment through a replica removes all that kubectl had set.
func TestADeploymentIsWhole(t *testing.T) {
	a := start(t, true)
	kubectl(t, `{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function","metadata":{"name":"whole","namespace":"openfaas-fn"},"spec":{
		"image":"whole:1","environment":{"A":"1"},"limits":{"cpu":"2"},"labels":{"l":"1"},"secrets":[],"annotations":{"com.openfaas.slo.latency":"50ms"}}}`, "apply", "-f", "-")
	a.invoked(t, "whole", "whole:1")
	a.must(t, 202, "PUT", "/system/functions", deployment("whole", "whole:2", func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{Memory: "1Gi"} }))
	out := kubectl(t, "", "get", "fn", "whole", "-n", "openfaas-fn", "-o", "jsonpath={.spec}")
	for _, left := range []string{`"A"`, `"cpu"`, `"l"`} {
		if strings.Contains(out, left) {
			t.Errorf("%s is left in %s", left, out)
		}
	}
	b := start(t, false)
	if d := b.running("whole.openfaas-fn").Deployment; d.Image != "whole:2" || d.EnvVars != nil || d.Limits.Memory != "1Gi" || d.Requests != nil {
		t.Errorf("restored as %+v", d)
	}
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"whole"}`)
}

// A deployment and a scaling at two replicas, one right after the other, both take effect, although
// neither replica has seen what the other one did.
func TestDeployedAndScaledAtTheSameTime(t *testing.T) {
	a, b := start(t, true), start(t, false)
	deploy := func(r *replica, image string) {
		t.Helper()
		r.must(t, 202, "POST", "/system/functions", deployment("both", image, nil))
	}
	kept := func(image string, n int64) {
		t.Helper()
		eventually(t, func() string {
			f, ok := a.objects.Lookup("both.openfaas-fn")
			if !ok || f.Spec.Image != image || f.Spec.Replicas == nil || *f.Spec.Replicas != n {
				return fmt.Sprintf("the object is not %s with %d instances: %+v", image, n, f)
			}
			for _, r := range []*replica{a, b} {
				r.mu.Lock()
				runs, scaled := r.runs["both.openfaas-fn"], r.scaled["both.openfaas-fn"]
				r.mu.Unlock()
				if runs.Deployment.Image != image || runs.Replicas != uint64(n) && scaled != uint64(n) {
					return fmt.Sprintf("%s runs with %d instances, scaled to %d", runs.Deployment.Image, runs.Replicas, scaled)
				}
			}
			return ""
		})
	}
	deploy(a, "both:0")
	b.invoked(t, "both", "both:0")
	for i := range int64(8) {
		image, n := fmt.Sprintf("both:%d", i+1), 2+i
		scale := fmt.Sprintf(`{"replicas":%d}`, n)
		if i%2 == 0 {
			a.must(t, 202, "POST", "/system/scale-function/both", scale)
			deploy(b, image)
		} else {
			deploy(a, image)
			b.must(t, 202, "POST", "/system/scale-function/both", scale)
		}
		kept(image, n)
	}
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"both"}`)
	a.absent(t, "both")
	b.absent(t, "both")
}
