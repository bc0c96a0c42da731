package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// spec is an instance of an earlier provider.
func spec(id, function, model string, revision uint64, batch, cpu int) cluster.InstanceSpec {
	return cluster.InstanceSpec{
		ID: cluster.InstanceID(id), Function: full(function), Revision: revision, Node: "n1", Artefact: cluster.Artefact{Model: model},
		Config: cluster.Config{Batch: batch, Resources: cluster.Resources{CPU: cpu, Memory: 256 << 20}},
	}
}

// left returns a controller, not running yet, on a cluster with ready instances of an
// earlier provider.
func left(t *testing.T, specs ...cluster.InstanceSpec) *rig {
	return leftWith(t, func(*Options) {}, specs...)
}

// leftWith is left with other options.
func leftWith(t *testing.T, edit func(*Options), specs ...cluster.InstanceSpec) *rig {
	r := newRig(t)
	edit(&r.options)
	for _, s := range specs {
		r.backend.Mu.Lock()
		in := r.backend.Add(s, behaviour{ReadyAfter: -1})
		in.State, in.ReadyAt = cluster.Ready, time.Now()
		r.backend.Mu.Unlock()
	}
	r.open()
	return r
}

func (r *rig) lives(id cluster.InstanceID) bool {
	for _, in := range r.backend.living() {
		if in.ID == id {
			return true
		}
	}
	return false
}

func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t,
			spec("mine", "f", "m", 1, 4, 1000),
			spec("unmeasured", "f", "m", 1, 4, 0),
			spec("larger", "f", "m", 1, 64, 500),
			spec("orphan", "gone", "m", 1, 4, 1000))
		r.deploy("f", "m")
		r.run()
		defer r.close()
		time.Sleep(100 * time.Millisecond)
		if r.lives("orphan") {
			t.Error("an instance of a function that is gone lives on")
		}
		if d := r.describe("f"); len(d.Instances) != 0 || !r.lives("mine") {
			t.Errorf("before the profile is known: %+v", d)
		}
		r.until("claimed", func() bool { return r.describe("f").Ready == 2 })
		r.answered("f", "m")
		r.until("the unknown config is stopped", func() bool { return !r.lives("unmeasured") })
		if n := r.backend.asked(); n != 0 {
			t.Errorf("%d instances were started, although two were there", n)
		}
		time.Sleep(2 * keepAlive)
		if n := len(r.backend.living()); n != 0 {
			t.Errorf("%d instances live on after the keep-alive", n)
		}
	})
}

// Instances of functions that are not back yet after a restart keep running, and those of
// others do not wait for that.
func TestTakeOverWaitsForFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t, spec("late", "f", "m", 1, 4, 1000), spec("orphan", "gone", "m", 1, 4, 1000))
		r.Restoring(func(name string) bool { return name == full("f") })
		r.run()
		defer r.close()
		r.until("the orphan is stopped", func() bool { return !r.lives("orphan") })
		time.Sleep(time.Minute)
		if !r.lives("late") {
			t.Error("an instance was stopped before its function could be back")
		}
		r.deploy("f", "m")
		r.until("claimed", func() bool { return r.describe("f").Ready == 1 })
	})
}

// If the image's content has changed meanwhile, a claimed instance runs another model. It
// serves until it is replaced.
func TestTakeOverOfAnotherModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t, spec("other", "f", "before", 1, 4, 1000))
		r.deploy("f", "m")
		r.run()
		defer r.close()
		r.until("claimed", func() bool { return r.describe("f").Ready == 1 })
		r.until("replaced", func() bool { return !r.lives("other") })
		r.answered("f", "m")
	})
}

// Unwanted instances hold their room until they are gone. The fake backend fails the test
// if the controller gives it away earlier.
func TestRoomOfUnwantedInstancesIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t, spec("orphan", "gone", "m", 1, 4, 4000))
		r.deploy("f", "m")
		r.until("measured", func() bool { return r.describe("f").Measured })
		r.run()
		defer r.close()
		r.answered("f", "m")
	})
}

func TestUnclaimedInstancesEndWithTheirFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t, spec("mine", "f", "m", 1, 4, 1000))
		r.deploy("f", "m")
		r.run()
		defer r.close()
		time.Sleep(100 * time.Millisecond)
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.until("stopped", func() bool { return len(r.backend.living()) == 0 })
	})
}

func TestInstanceThatExitsBeforeItIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t, spec("mine", "f", "m", 1, 4, 1000), spec("other", "f", "m", 1, 4, 1000))
		r.deploy("f", "m")
		r.run()
		defer r.close()
		r.backend.crash("mine", "killed by signal 9")
		r.until("claimed", func() bool { return r.describe("f").Ready == 1 })
		r.answered("f", "m")
	})
}

// Close before anything was claimed stops the earlier provider's instances too.
func TestCloseStopsWhatNobodyClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := left(t, spec("mine", "f", "m", 1, 4, 1000))
		r.deploy("f", "m")
		r.run()
		defer r.close()
	})
}
