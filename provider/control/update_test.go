package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// An update keeps the old revision and its model serving until the new one's
// instances are ready.
func TestUpdateServesWithoutAGap(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "old")
		r.answered("f", "old")
		updated := make(chan struct{})
		go func() {
			defer close(updated)
			time.Sleep(time.Second)
			r.deploy("f", "new")
		}()
		if failed := r.load("f", 5*time.Millisecond, 5*time.Second); failed > 0 {
			t.Errorf("%d requests failed during the update", failed)
		}
		<-updated
		r.until("the old ones are gone", func() bool {
			for _, in := range r.backend.living() {
				if in.Model != "new" {
					return false
				}
			}
			return true
		})
		r.answered("f", "new")
		r.backend.Mu.Lock()
		defer r.backend.Mu.Unlock()
		for _, spec := range r.backend.Started {
			if (spec.Model == "new") != (spec.Revision == r.revision) || spec.Bundle != "bundles/"+spec.Model {
				t.Errorf("an instance of revision %d was started with %q of %q", spec.Revision, spec.Model, spec.Bundle)
			}
		}
	})
}

// If there is no room for both revisions, the only instance stops before the next one starts. Requests wait
// for that one, also those that came before.
func TestUpdateWithoutRoomForBoth(t *testing.T) {
	try(t, func(r *rig) {
		large := func(f *provider.Function) { f.Inference.SLO, f.Inference.Requests.CPU = 50*time.Millisecond, 3000 }
		r.measured("f", "m", large)
		r.load("f", 2500*time.Microsecond, 5*time.Second) // It gets to know the load.
		go func() {
			time.Sleep(time.Second)
			r.deploy("f", "m", large, func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"v": "2"} })
		}()
		if failed := r.load("f", 2500*time.Microsecond, 4*time.Second); failed > 0 {
			t.Errorf("%d requests failed during the update", failed)
		}
		if d := r.describe("f"); len(d.Instances) != 1 || d.Instances[0].Revision != r.revision {
			t.Errorf("%+v", d.Instances)
		}
	})
}

// Several instances fill the machine, and none of their load is refused: what they do not carry during the
// update waits as for a first instance.
func TestUpdateOfSeveralWithoutRoomForBoth(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(6000)
		one := func(f *provider.Function) {
			f.Inference.SLO, f.Inference.MaxBatch, f.Inference.Requests.CPU, f.Inference.Limits.CPU = 50*time.Millisecond, 1, 1000, 1000
		}
		r.measured("f", "m", one)
		const pause = 800 * time.Microsecond // 1,250/s; each carries 250/s.
		r.load("f", pause, 10*time.Second)   // It gets to know the load.
		go func() {
			time.Sleep(time.Second)
			r.deploy("f", "m", one, func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"v": "2"} })
		}()
		before := len(r.describe("f").Instances)
		if failed := r.load("f", pause, 10*time.Second); failed > 0 || before != 6 {
			t.Errorf("%d requests failed during the update of %d instances", failed, before)
		}
		for _, in := range r.describe("f").Instances {
			if in.Revision != r.revision {
				t.Errorf("%+v", in)
			}
		}
		r.until("steady", func() bool { return !r.functions[full("f")].dispatcher.Stats().Starting })
	})
}

func TestUpdateThatFailsLeavesTheOldOneServing(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "old")
		r.answered("f", "old")
		r.models.fail(errors.New("the engine crashed"))
		r.deploy("f", "new")
		r.until("a problem", func() bool { return strings.Contains(r.describe("f").Problem, "the engine crashed") })
		time.Sleep(2 * keepAlive)
		r.answered("f", "old")
		s, _ := r.Status(full("f"))
		if d := r.describe("f"); !strings.HasPrefix(d.Problem, provider.Before("")) || s.Problem != d.Problem {
			t.Errorf("problem %q, and in the status %q", d.Problem, s.Problem)
		}
	})
}

// The problem says that the earlier revision is served, for as long as it is.
func TestInstancesOfAnUpdateThatDie(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "old")
		r.answered("f", "old")
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour {
			return behaviour{ReadyAfter: -1, ExitAfter: 50 * time.Millisecond, ExitReason: "no such library"}
		})
		r.deploy("f", "new")
		r.until("a problem", func() bool {
			if _, err := r.invoke("f", "x"); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(r.describe("f").Problem, "no such library")
		})
		r.answered("f", "old")
		if d := r.describe("f"); !strings.HasPrefix(d.Problem, provider.Before("an instance exited")) {
			t.Errorf("problem %q", d.Problem)
		}
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{} })
		r.until("the new one", func() bool {
			got, err := r.invoke("f", "x")
			return err == nil && got == "new:x"
		})
		if d := r.describe("f"); strings.Contains(d.Problem, "previous deployment is served") {
			t.Errorf("problem %q", d.Problem)
		}
	})
}

// The provider goes back to the earlier revision if it could not store the later one.
func TestGoingBackToAnEarlierRevision(t *testing.T) {
	try(t, func(r *rig) {
		first := r.function("f", "old")
		deploy := func(f *provider.Function) {
			d, err := r.Deploy(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			r.on.Dispatchers.Store("f", d)
		}
		deploy(first)
		r.until("measured", func() bool { return r.describe("f").Measured })
		deploy(r.function("f", "new"))
		time.Sleep(2 * time.Second)
		r.answered("f", "new")
		deploy(first)
		r.until("old again", func() bool {
			got, err := r.invoke("f", "x")
			return err == nil && got == "old:x"
		})
	})
}

// Deploying the same again, or with another objective, restarts nothing.
func TestADeploymentThatChangesNothingForInstancesKeepsThem(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		before := r.describe("f").Instances
		for _, edit := range []func(*provider.Function){func(*provider.Function) {}, fast(150 * time.Millisecond)} {
			r.deploy("f", "m", edit)
			time.Sleep(5 * time.Second)
			r.answered("f", "m")
			if after := r.describe("f").Instances; len(after) != len(before) || after[0].ID != before[0].ID {
				t.Errorf("instances %v became %v", before, after)
			}
		}
	})
}
