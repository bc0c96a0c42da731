package local

import (
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// An instance that is moved off its core may run on all cores, as may those that had the rest
// of them. A new quota gives it a core of its own again.
func TestMove(t *testing.T) {
	own, err := ownCores()
	if err != nil {
		t.Fatal(err)
	}
	o := options(t.TempDir(), false)
	o.PinCPUs = true
	b := open(t, o)
	if b.tree == nil || len(own) < 2 {
		t.Log("no cgroups or a single core; nothing more to try")
		return
	}
	move := func(id cluster.InstanceID, want bool) {
		t.Helper()
		if moved, err := b.Move(t.Context(), id); moved != want || err != nil {
			t.Errorf("%s: moved %v, %v; want %v", id, moved, err, want)
		}
	}
	shared := begin(t, b, spec("shared", "serving"))
	expect(t, b, "shared", cluster.Ready)
	everywhere := allowed(t, shared)
	move("shared", false)
	whole := spec("whole", "serving")
	whole.Config.CPU = 1000
	exclusive := begin(t, b, whole)
	expect(t, b, "whole", cluster.Ready)
	core := allowed(t, exclusive)
	move("whole", true)
	if one, other := allowed(t, exclusive), allowed(t, shared); core == everywhere || one != everywhere || other != everywhere {
		t.Errorf("moved from %q it may run on %q, the other on %q, want %q", core, one, other, everywhere)
	}
	move("whole", false)
	if err := resized(t, b, "whole", 500); err != nil {
		t.Fatal(err)
	}
	if err := resized(t, b, "whole", 1000); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, exclusive); got != core {
		t.Errorf("with a new quota it may run on %q, want %q", got, core)
	}
	if _, err := b.Move(t.Context(), "none"); err == nil {
		t.Error("an instance that does not exist was moved")
	}
}

// A member of the shared pool that asks for a whole core keeps one from being given away.
func TestSharedDemandKeepsCores(t *testing.T) {
	a := newCoreAllocator([]int{0, 1})
	a.Take("one", 1000)
	a.Take("two", 1000)
	if got := a.Shared(); len(got) != 0 {
		t.Fatalf("shared: %v", got)
	}
	a.Share("one", 1000)
	if got := a.Take("three", 1000); got != nil {
		t.Errorf("three got %v: one needs a core", got)
	}
}
