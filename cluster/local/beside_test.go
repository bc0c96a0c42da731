package local

import (
	"errors"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// Instances cannot have the memory of processes beside them: it is neither offered nor
// given.
func TestMemoryBesideInstances(t *testing.T) {
	const total = 1 << 30 // That of options.
	for _, c := range []struct {
		name                    string
		beside, total, free, by int64
		started                 bool
	}{
		{"nothing", 0, total, total, total, true},
		{"a part", 100 << 20, total - 100<<20, total - 100<<20, total - 100<<20, true},
		{"one byte too much", 100 << 20, total - 100<<20, total - 100<<20, total - 100<<20 + 1, false},
		{"more than there is", 2 << 30, 0, 0, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t.TempDir(), true)
			o.Beside = func() int64 { return c.beside }
			b := open(t, o)
			nodes, err := b.Nodes(t.Context())
			if err != nil || nodes[0].Total.Memory != c.total || nodes[0].Free.Memory != c.free || nodes[0].Total.CPU != 4000 {
				t.Errorf("%+v, %v", nodes, err)
			}
			s := spec("one", "forking")
			s.Config.Memory = c.by
			if _, err := b.Start(t.Context(), s); (err == nil) != c.started || err != nil && !errors.Is(err, ErrNoCapacity) {
				t.Errorf("started with %d bytes: %v", c.by, err)
			}
			if !c.started {
				return
			}
			expect(t, b, "one", cluster.Ready)
			if nodes, err = b.Nodes(t.Context()); err != nil || nodes[0].Total.Memory != c.total || nodes[0].Free.Memory != 0 {
				t.Errorf("with the instance %+v, %v", nodes, err)
			}
		})
	}
}

// If the memory beside running instances grows, they stay and no further one starts.
func TestMemoryBesideInstancesGrows(t *testing.T) {
	var held int64
	o := options(t.TempDir(), true)
	o.Beside = func() int64 { return held }
	b := open(t, o)
	s := spec("one", "forking")
	s.Config.Memory = 900 << 20
	begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	held = 500 << 20
	if nodes, err := b.Nodes(t.Context()); err != nil || nodes[0].Total.Memory != 524<<20 || nodes[0].Free.Memory != 0 {
		t.Errorf("%+v, %v", nodes, err)
	}
	if all, err := b.Instances(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	other := spec("two", "forking")
	other.Config.Memory = 1
	if _, err := b.Start(t.Context(), other); !errors.Is(err, ErrNoCapacity) {
		t.Errorf("started beyond the memory: %v", err)
	}
}
