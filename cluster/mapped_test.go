package cluster

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

const mib = 1 << 20

// resnet takes 256 MiB, of which it maps 98 MiB.
func resnet() Resources {
	return Resources{CPU: 100, Memory: 256 * mib, Mapped: Mapping{"resnet-50", 98 * mib}}
}

func TestNodeCountsMappedFilesOnce(t *testing.T) {
	n := Node{Total: Resources{CPU: 4000, Memory: 2 << 30}}
	n.Clear()
	other := resnet()
	other.Mapped.File = "other"
	larger := resnet()
	larger.Mapped.Bytes++
	for _, c := range []struct {
		what string
		do   func()
		used int64
	}{
		{"the first counts all", func() { n.Hold(resnet(), "") }, 256},
		{"the second its own", func() { n.Hold(resnet(), "") }, 414},
		{"a parked one, too", func() { n.Hold(resnet().Parked(), "") }, 572},
		{"another file counts", func() { n.Hold(other, "") }, 828},
		{"one that goes frees its own", func() { n.Drop(resnet(), "") }, 670},
		{"the next, too", func() { n.Drop(resnet(), "") }, 512},
		{"the last frees the file", func() { n.Drop(resnet().Parked(), "") }, 256},
		{"a file of another size is another one", func() { n.Hold(larger, ""); n.Drop(larger, "") }, 256},
		{"the other goes", func() { n.Drop(other, "") }, 0},
	} {
		c.do()
		if used := (n.Total.Memory - n.Free.Memory) / mib; used != c.used {
			t.Fatalf("%s: %d MiB are used, want %d", c.what, used, c.used)
		}
	}
	if n.Mapped = slices.Clip(n.Mapped); len(n.Mapped) > 0 || n.Free != n.Total {
		t.Errorf("%+v is left", n)
	}
}

// TestNodeOf2GiB says how many instances of ResNet-50 fit, and that a copy of the node stays as it was.
func TestNodeOf2GiB(t *testing.T) {
	whole := resnet()
	whole.Mapped = Mapping{}
	for _, c := range []struct {
		need Resources
		want int
	}{{whole, 8}, {resnet(), 12}} {
		n := Node{Total: Resources{CPU: 4000, Memory: 2 << 30}}
		n.Clear()
		before, count := n, 0
		for ; n.Fits(c.need, Tenant{}); count++ {
			n.Start(c.need, Tenant{})
		}
		if count != c.want || n.Free.Memory < 0 || !n.FitsOn(Resources{}, "") || n.FitsOn(c.need, "") {
			t.Errorf("%d instances that take %+v fit, want %d; %d bytes are left", count, c.need, c.want, n.Free.Memory)
		}
		if len(before.Mapped) > 0 || before.Free != before.Total || before.Same(&n) {
			t.Errorf("the copy is %+v", before)
		}
	}
}

// yield adds what instances hold to the node's others.
func yield(n *Node, all ...InstanceSpec) {
	count := n.Recount()
	for _, s := range all {
		count.Take(&s, s.Holds())
	}
	count.Yield()
}

func TestOthersMapFilesOnce(t *testing.T) {
	n := Node{Total: Resources{CPU: 4000, Memory: 1 << 30}}
	n.Clear()
	s := InstanceSpec{Config: Config{Resources: resnet()}}
	for range 3 {
		n.Take(&s, s.Holds())
	}
	yield(&n, s, s)
	if used := n.Others.Memory / mib; used != 414 {
		t.Errorf("two of the others take %d MiB, want 414", used)
	}
	n.Clear()
	if n.Free.Memory != n.Total.Memory-414*mib {
		t.Errorf("%d MiB are free beside the others", n.Free.Memory/mib)
	}
	if n.Take(&s, s.Holds()); n.Free.Memory != n.Total.Memory-572*mib {
		t.Errorf("%d MiB are free with one more", n.Free.Memory/mib)
	}
	strange := Node{Total: n.Total}
	if yield(&strange, s); strange.Others.Memory != 256*mib || !strange.Maps(s.Config.Mapped) {
		t.Errorf("%+v after yielding what it did not know", strange)
	}
}

// FuzzMapped checks that a node counts what instances have of their own and each file once, in whatever
// order they come and go.
func FuzzMapped(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := Node{Total: Resources{CPU: 100_000, Memory: 8 << 30}}
		n.Clear()
		var held []Resources
		for range 200 {
			if len(held) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(held))
				n.Drop(held[i], "")
				held = slices.Delete(held, i, i+1)
			} else {
				need := Resources{CPU: 1 + r.IntN(100), Memory: r.Int64N(1 << 29)}
				if r.IntN(4) > 0 {
					need.Mapped = Mapping{fmt.Sprint(r.IntN(3)), int64(1+r.IntN(2)) << 26}
					need.Memory += need.Mapped.Bytes
				}
				if !n.Fits(need, Tenant{}) {
					continue
				}
				n.Start(need, Tenant{})
				held = append(held, need)
			}
			var sum Sum
			own, files := int64(0), map[Mapping]bool{}
			for _, x := range held {
				own += x.Own()
				files[x.Mapped] = true
				sum.Hold("", x)
			}
			for f := range files {
				own += f.Bytes
			}
			if used := n.Total.Memory - n.Free.Memory; used != own || sum.Memory != own || n.Free.Memory < 0 {
				t.Fatalf("%d bytes are used and %d summed, want %d", used, sum.Memory, own)
			}
		}
	})
}

// A count of many at once is what Take says one by one.
func TestRecount(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 200 {
		one := Node{Total: Resources{CPU: 100_000, Memory: 8 << 30, GPU: 200}, Devices: gpus(100, 100)}
		yield(&one, InstanceSpec{Config: Config{Resources: resnet()}})
		one.Clear()
		many := one
		count := many.Recount()
		for range r.IntN(30) {
			s := InstanceSpec{Kind: []Kind{"", Process}[r.IntN(2)], Devices: []string{string(rune('a' + r.IntN(2)))}, Config: Config{Resources: resnet()}, Parked: r.IntN(3) == 0}
			s.Config.Mapped.File = []string{"resnet-50", "a", "z", ""}[r.IntN(4)]
			one.Take(&s, s.Holds())
			count.Take(&s, s.Holds())
		}
		if count.Done(); !many.Same(&one) {
			t.Fatalf("%+v, one by one %+v", many, one)
		}
	}
}

// A count of four times as many models copies about four times as many bytes.
func TestRecountGrowth(t *testing.T) {
	copied := func(models int) uint64 {
		specs := make([]InstanceSpec, models)
		for i := range specs {
			specs[i].Config.Resources = Resources{CPU: 250, Memory: 256 * mib, Mapped: Mapping{fmt.Sprintf("%032d", i), 100 * mib}}
		}
		n := Node{Total: Resources{CPU: 1 << 20, Memory: 1 << 45}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		count := n.Recount()
		for i := range specs {
			count.Take(&specs[i], specs[i].Holds())
		}
		count.Done()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := copied(500), copied(2000); many > 6*few {
		t.Errorf("500 models copy %d bytes and 2,000 copy %d", few, many)
	}
}
