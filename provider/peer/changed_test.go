package peer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// fleet is the loads of functions with an instance each that has been idle for a while.
func fleet(functions int, idle time.Duration) map[string]FunctionLoad {
	all := map[string]FunctionLoad{}
	for i := range functions {
		all[fmt.Sprintf("customer-model-%05d.openfaas-fn", i)] = FunctionLoad{Arrivals: uint64(1000 + i), InTime: uint64(990 + i),
			Idle: map[cluster.InstanceID]int64{cluster.InstanceID(fmt.Sprintf("customer-model-%05d-0a1b2c3d4e5f", i)): idle.Milliseconds()}}
	}
	return all
}

// Of 10,000 functions one has a request. The others are not sent again, however long they are idle.
func TestOnlyChangedLoadsAreSent(t *testing.T) {
	var c changes
	now := time.Unix(1000, 0)
	all := fleet(10_000, time.Minute)
	first, version, whole := c.since(now, 0, all)
	if !whole || len(first) != len(all) {
		t.Fatalf("the first answer has %d functions, whole %v", len(first), whole)
	}
	all = fleet(10_000, time.Minute+3*time.Second)
	asked := "customer-model-00007.openfaas-fn"
	f := all[asked]
	f.Arrivals++
	all[asked] = f
	next, version, whole := c.since(now.Add(3*time.Second), version, all)
	if body, _ := json.Marshal(next); whole || len(next) != 1 || len(body) > 500 {
		t.Errorf("%d functions in %d bytes, whole %v", len(next), len(body), whole)
	}
	look := func(after time.Duration, version uint64) (map[string]FunctionLoad, uint64, bool) {
		all := fleet(10_000, time.Minute+after)
		delete(all, asked)
		return c.since(now.Add(after), version, all)
	}
	if next, version, _ = look(4*time.Second, version); len(next) != 1 || next[asked].Arrivals != 0 {
		t.Errorf("a removed function: %d are sent", len(next))
	}
	before := version
	_, version, _ = look(2*goneFor, version)
	if _, _, whole = look(2*goneFor, before-1); !whole {
		t.Error("a reader that has not heard that a function is gone does not get all")
	}
	if next, _, whole = look(2*goneFor, version); whole || len(next) > 0 || len(c.of) != 9_999 {
		t.Errorf("%d functions, whole %v, %d remembered", len(next), whole, len(c.of))
	}
}

// Readers that ask at different times, and miss wake-ups, have the same loads in the end.
func FuzzReadersAgree(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		var c changes
		now, all := time.Unix(1000, 0), map[string]FunctionLoad{}
		type reader struct {
			version uint64
			load    Load
		}
		var readers [3]reader
		told := uint64(0)
		read := func(one *reader) {
			sent := Load{At: now}
			sent.Functions, sent.Version, sent.Whole = c.since(now, one.version, maps.Clone(all))
			sent.Functions = merge(one.load, sent)
			one.version, one.load = sent.Version, sent
		}
		for range 200 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Second)
			name := fmt.Sprint("f", r.IntN(8))
			switch f := all[name]; r.IntN(4) {
			case 0:
				delete(all, name)
			default:
				f.Arrivals, f.Waiting = f.Arrivals+1, r.IntN(3)
				f.Idle = map[cluster.InstanceID]int64{"i": int64(r.IntN(3) - 1)}
				all[name] = f
			}
			switch one := &readers[r.IntN(3)]; r.IntN(3) {
			case 0:
				read(one)
			case 1: // A wake-up goes to all; this one gets it.
				sent := Load{At: now}
				sent.Functions, sent.Version, sent.Whole = c.since(now, told, maps.Clone(all))
				told, one.load.Functions = sent.Version, merge(one.load, sent)
			}
		}
		for i := range readers {
			read(&readers[i])
			if got := readers[i].load.Functions; len(got) != len(all) {
				t.Fatalf("reader %d has %v, want %v", i, got, all)
			}
			for name, f := range all {
				if got := readers[i].load.Functions[name]; got.Arrivals != f.Arrivals || got.Waiting != f.Waiting || got.Idle["i"] != f.Idle["i"] {
					t.Fatalf("reader %d has %+v of %s, want %+v", i, got, name, f)
				}
			}
		}
	})
}
