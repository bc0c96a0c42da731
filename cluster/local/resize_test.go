package local

import (
	"errors"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func resized(t *testing.T, b *Backend, id cluster.InstanceID, millicores int) error {
	t.Helper()
	instances, err := b.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range instances {
		if in.ID == id {
			in.Config.CPU = millicores
			return b.Resize(t.Context(), id, in.Config)
		}
	}
	return b.Resize(t.Context(), id, cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: millicores}})
}

// used returns how many millicores an instance uses.
func used(t *testing.T, b *Backend, id cluster.InstanceID) int {
	t.Helper()
	if _, err := b.Usage(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	time.Sleep(600 * time.Millisecond)
	usage, err := b.Usage(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return usage.CPU
}

// usedBelow returns what [used] finds. If that is more than most, it returns the lowest of
// several readings, because a pause of the machine between counter and clock makes a
// reading too high.
func usedBelow(t *testing.T, b *Backend, id cluster.InstanceID, most int) int {
	t.Helper()
	least := used(t, b, id)
	for try := 0; try < 4 && least > most; try++ {
		least = min(least, used(t, b, id))
	}
	return least
}

func TestResize(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		first, err := New(t.Context(), options(dir, bare))
		if err != nil {
			t.Fatal(err)
		}
		s := spec("one", "serving")
		s.Config.CPU = 250
		begin(t, first, s)
		in := expect(t, first, "one", cluster.Ready)
		if err := resized(t, first, "one", 750); err != nil {
			t.Fatal(err)
		}
		ask(t, in, "/burn")
		// On a busy machine it does not get at once all that it may have.
		for deadline := time.Now().Add(2 * time.Minute); first.tree != nil; {
			got := usedBelow(t, first, "one", 900)
			if got > 900 || time.Now().After(deadline) {
				t.Fatalf("with 750m it uses %dm", got)
			}
			if got > 350 {
				break
			}
		}
		nodes, err := first.Nodes(t.Context())
		if err != nil || nodes[0].Free.CPU != 4000-750 {
			t.Errorf("free is %+v, %v, want 3250m", nodes, err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}

		b := open(t, options(dir, bare))
		instances, err := b.Instances(t.Context())
		if err != nil || len(instances) != 1 || instances[0].Config.CPU != 750 || instances[0].State != cluster.Ready {
			t.Fatalf("taken over: %+v, %v", instances, err)
		}
		if err := resized(t, b, "one", 250); err != nil {
			t.Fatal(err)
		}
		if got := usedBelow(t, b, "one", 350); b.tree != nil && got > 350 {
			t.Errorf("with 250m it uses %dm", got)
		}
		stopNow(t, b, "one")
		expect(t, b, "one", cluster.Stopping)
		expect(t, b, "one", cluster.Exited)
		if err := resized(t, b, "one", 500); err == nil {
			t.Error("one that has exited was resized")
		}
		nothingLeft(t, b)
	})
}

func TestResizeRefuses(t *testing.T) {
	b := open(t, options(t.TempDir(), true))
	begin(t, b, spec("one", "serving"))
	other := spec("other", "serving")
	other.Config.CPU = 3000
	begin(t, b, other)
	if err := resized(t, b, "none", 500); err == nil {
		t.Error("one that does not exist was resized")
	}
	if err := resized(t, b, "one", 0); err == nil {
		t.Error("it has no quota any more")
	}
	if err := resized(t, b, "one", 1500); err == nil {
		t.Error("it has more quota than threads")
	}
	if err := resized(t, b, "other", 2500); err != nil {
		t.Errorf("the same threads: %v", err)
	}
	if err := resized(t, b, "other", 3000); err != nil {
		t.Errorf("what it had: %v", err)
	}
	if err := resized(t, b, "one", 1000); err != nil {
		t.Errorf("all that is free: %v", err)
	}
	third := spec("third", "serving")
	third.Config.CPU = 1
	if _, err := b.Start(t.Context(), third); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("one more was started: %v", err)
	}
	if err := b.Resize(t.Context(), "one", cluster.Config{Batch: 2, Resources: cluster.Resources{CPU: 1000}}); err == nil {
		t.Error("its batch size has changed")
	}
	if err := resized(t, b, "other", 2500); err != nil {
		t.Error(err)
	}
	if err := b.Resize(t.Context(), "one", cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1}}); err == nil {
		t.Error("its memory has changed")
	}
	if err := resized(t, b, "other", 3000); err != nil {
		t.Error(err)
	}
	if err := resized(t, b, "one", 1000); err != nil {
		t.Error(err)
	}
	if _, err := b.Nodes(t.Context()); err != nil {
		t.Error(err)
	}
}

// An instance without room to grow keeps its quota.
func TestResizeKeepsWithinWhatIsFree(t *testing.T) {
	o := options(t.TempDir(), false)
	o.Total.CPU = 1000
	b := open(t, o)
	begin(t, b, spec("one", "serving"))
	second := spec("two", "serving")
	second.Config.CPU = 250
	begin(t, b, second)
	if err := resized(t, b, "one", 800); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("800m of 750m: %v", err)
	}
	if err := resized(t, b, "one", 750); err != nil {
		t.Error(err)
	}
	nodes, err := b.Nodes(t.Context())
	if err != nil || nodes[0].Free.CPU != 0 {
		t.Errorf("free: %+v, %v", nodes, err)
	}
}

// A quota of a whole core comes with the core, and goes with it.
func TestResizeTakesCores(t *testing.T) {
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
	one := begin(t, b, spec("one", "serving"))
	expect(t, b, "one", cluster.Ready)
	two := begin(t, b, spec("two", "serving"))
	expect(t, b, "two", cluster.Ready)
	everywhere := allowed(t, one)
	if err := resized(t, b, "one", 1000); err != nil {
		t.Fatal(err)
	}
	if mine, others := allowed(t, one), allowed(t, two); mine == everywhere || others == everywhere || mine == others {
		t.Errorf("with a core of its own it may run on %q, the other on %q", mine, others)
	}
	if err := resized(t, b, "one", 500); err != nil {
		t.Fatal(err)
	}
	if mine, others := allowed(t, one), allowed(t, two); mine != everywhere || others != everywhere {
		t.Errorf("without it may run on %q, the other on %q, want %q", mine, others, everywhere)
	}
}
