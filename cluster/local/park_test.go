package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// An instance that starts cannot be parked.
func TestParkWhileStarting(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	begin(t, b, spec("one", "never ready"))
	if err := b.Park(t.Context(), "one"); err == nil {
		t.Error("one that starts was parked")
	}
}

// A parked instance answers, holds only its memory and gets almost no CPU. The next provider
// takes it over parked and can give it back its share.
func TestPark(t *testing.T) {
	eachWay(t, func(t *testing.T, bare bool) {
		dir := t.TempDir()
		first, err := New(t.Context(), options(dir, bare))
		if err != nil {
			t.Fatal(err)
		}
		s := spec("one", "serving")
		s.Config.CPU, s.Config.Memory = 1000, 1<<29
		begin(t, first, s)
		in := expect(t, first, "one", cluster.Ready)
		ask(t, in, "/burn")
		for range 2 { // A parked one stays so.
			if err := first.Park(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, first, true, cluster.Resources{CPU: 4000, Memory: 1 << 29})
		if got := usedBelow(t, first, "one", 3*parkedCPU); first.tree != nil && got > 3*parkedCPU {
			t.Errorf("parked it uses %dm", got)
		}
		if got := ask(t, in, "/read?file=/dev/null"); got != "<nil>" {
			t.Errorf("parked it answers %q", got)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}

		b := open(t, options(dir, bare))
		holds(t, b, true, cluster.Resources{CPU: 4000, Memory: 1 << 29})
		if got := usedBelow(t, b, "one", 3*parkedCPU); b.tree != nil && got > 3*parkedCPU {
			t.Errorf("taken over it uses %dm", got)
		}
		if err := b.Resize(t.Context(), "one", s.Config); err != nil {
			t.Fatal(err)
		}
		holds(t, b, false, cluster.Resources{CPU: 3000, Memory: 1 << 29})
		if got := ask(t, in, "/read?file=/dev/null"); got != "<nil>" {
			t.Errorf("unparked it answers %q", got)
		}
		// On a busy machine it does not get at once all that it may have.
		for deadline := time.Now().Add(2 * time.Minute); b.tree != nil && used(t, b, "one") < 8*parkedCPU; {
			if time.Now().After(deadline) {
				t.Fatal("unparked it does not get its share")
			}
		}
	})
}

// A disk that takes no record, for example because logs have filled it, keeps no instance from its
// share. The record is written once the disk takes it, for the next provider.
func TestUnparkWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	first, err := New(t.Context(), options(dir, true))
	if err != nil {
		t.Fatal(err)
	}
	s := spec("one", "serving")
	s.Config.CPU, s.Config.Memory = 1000, 1<<29
	begin(t, first, s)
	in := expect(t, first, "one", cluster.Ready)
	if err := first.Park(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(first.layout.instance("one"), "instance.json.new")
	if err := os.Mkdir(full, 0o700); err != nil { // Writing there fails, for root too.
		t.Fatal(err)
	}
	if err := first.Resize(t.Context(), "one", s.Config); err != nil {
		t.Errorf("unparking it: %v", err)
	}
	holds(t, first, false, cluster.Resources{CPU: 3000, Memory: 1 << 29})
	if got := ask(t, in, "/read?file=/dev/null"); got != "<nil>" {
		t.Errorf("unparked it answers %q", got)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	first.leftovers.tidy()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, open(t, options(dir, true)), false, cluster.Resources{CPU: 3000, Memory: 1 << 29})
}

// holds fails unless the only instance is parked as given and the node has so much free.
func holds(t *testing.T, b *Backend, parked bool, free cluster.Resources) {
	t.Helper()
	instances, err := b.Instances(t.Context())
	if err != nil || len(instances) != 1 || instances[0].Parked != parked || instances[0].Config.CPU != 1000 {
		t.Errorf("instances %+v, %v; one should be there, parked: %v", instances, err, parked)
	}
	if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Free != free {
		t.Errorf("nodes %+v, %v; free should be %+v", nodes, err, free)
	}
}

// Other instances can use a parked instance's share. It stays parked until the share is
// free again.
func TestAParkedInstancesShareIsOthers(t *testing.T) {
	o := options(t.TempDir(), true)
	o.Total.CPU = 1000
	b := open(t, o)
	one := spec("one", "serving")
	one.Config.CPU, one.Config.Memory = 1000, 1<<29
	begin(t, b, one)
	expect(t, b, "one", cluster.Ready)
	if err := b.Park(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	two := spec("two", "serving")
	two.Config.CPU, two.Config.Memory = 700, 1<<30
	if _, err := b.Start(t.Context(), two); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("there is no such memory: %v", err)
	}
	two.Config.Memory = 1 << 29
	begin(t, b, two)
	expect(t, b, "two", cluster.Ready)
	if err := b.Resize(t.Context(), "one", one.Config); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("1000m of 300m: %v", err)
	}
	holdsParked := func(want bool) {
		t.Helper()
		instances, err := b.Instances(t.Context())
		if err != nil || len(instances) != 2 || instances[0].Parked != want {
			t.Errorf("instances %+v, %v", instances, err)
		}
	}
	holdsParked(true)
	smaller := one.Config
	smaller.CPU = 300
	if err := b.Resize(t.Context(), "one", smaller); err != nil {
		t.Errorf("all that is free: %v", err)
	}
	holdsParked(false)
	if err := b.Park(t.Context(), "none"); err == nil {
		t.Error("one that does not exist was parked")
	}
}

// BenchmarkUnpark measures the time until a parked instance may compute again.
func BenchmarkUnpark(b *testing.B) {
	o := options(b.TempDir(), false)
	backend, err := New(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	s := spec("one", "serving")
	if _, err := backend.Start(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	<-backend.Events()
	for b.Loop() {
		b.StopTimer()
		if err := backend.Park(b.Context(), "one"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := backend.Resize(b.Context(), "one", s.Config); err != nil {
			b.Fatal(err)
		}
	}
	if err := backend.Stop(b.Context(), "one"); err != nil {
		b.Fatal(err)
	}
	if err := backend.Close(); err != nil {
		b.Fatal(err)
	}
}
