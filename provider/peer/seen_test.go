package peer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

var t0 = time.Unix(1_700_000_000, 0)

// batches returns batches of these sizes.
func batches(sizes ...int) (all []dispatch.Executed) {
	for _, n := range sizes {
		all = append(all, dispatch.Executed{Instance: "i", Size: n, Exec: time.Duration(n) * time.Millisecond})
	}
	return all
}

func sizes(all []Executed) (out []int) {
	for _, e := range all {
		out = append(out, e.Size)
	}
	return out
}

func TestChronicle(t *testing.T) {
	var c executedLog
	if c.Since(0) != nil {
		t.Error("nothing was executed")
	}
	c.Add("f", batches(1, 2))
	c.Add("g", batches(3))
	if all := c.Since(0); c.Total != 3 || !reflect.DeepEqual(all[2], Executed{Function: "g", Instance: "i", Size: 3, Exec: 3 * time.Millisecond}) {
		t.Errorf("%+v of %d", all, c.Total)
	}
	for n, want := range [][]int{{1, 2, 3}, {2, 3}, {3}, nil, nil} {
		if got := sizes(c.Since(uint64(n))); !reflect.DeepEqual(got, want) {
			t.Errorf("after %d: %v, want %v", n, got, want)
		}
	}
	// Later batches do not change a result of Since.
	kept := c.Since(0)
	c.Add("f", batches(make([]int, 3*maxRan)...))
	if got := sizes(kept); !reflect.DeepEqual(got, []int{1, 2, 3}) {
		t.Errorf("they became %v", got)
	}
	if got := c.Since(0); len(got) != maxRan || len(c.kept) > 2*maxRan || c.Total != 3*maxRan+3 {
		t.Errorf("%d of %d are told, %d kept", len(got), c.Total, len(c.kept))
	}
}

// A reader that asks often enough gets every batch once and in order, however many come at
// a time. Any other reader gets the latest.
func FuzzChronicle(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 4))
		var c executedLog
		next, heard := 0, 0
		for range 50 {
			var some []int
			for range r.IntN(maxRan) {
				some = append(some, next)
				next++
			}
			c.Add("f", batches(some...))
			if r.IntN(2) == 0 {
				continue
			}
			got := sizes(c.Since(uint64(heard)))
			if want := min(next-heard, maxRan); len(got) != want {
				t.Fatalf("%d of the %d after %d are told", len(got), next-heard, heard)
			}
			for i, n := range got {
				if n != next-len(got)+i {
					t.Fatalf("%d comes at %d of %d", n, i, len(got))
				}
			}
			heard = next
		}
	})
}

func load(arrivals, cold uint64, waiting int) FunctionLoad {
	return FunctionLoad{Arrivals: arrivals, Cold: cold, Waiting: waiting}
}

func TestCounting(t *testing.T) {
	var o peerLoads
	stats := func() dispatch.Stats {
		s := dispatch.Stats{Arrivals: 1000, Cold: 100, Waiting: 10}
		o.Add(&s)
		return s
	}
	want := func(what string, arrivals, cold uint64, waiting int) {
		t.Helper()
		if s := stats(); s.Arrivals != 1000+arrivals || s.Cold != 100+cold || s.Waiting != 10+waiting {
			t.Errorf("%s: %d arrivals, %d cold, %d waiting", what, s.Arrivals-1000, s.Cold-100, s.Waiting-10)
		}
	}
	want("nobody told anything", 0, 0, 0)
	o.Take("a", load(50, 5, 3), t0)
	want("what came before it was heard is over, but for what waits", 3, 0, 3)
	o.Take("a", load(70, 6, 1), t0)
	want("what has come since counts", 23, 1, 1)
	o.Take("b", load(2, 2, 4), t0)
	want("another, of which more waits than has come", 25, 1, 5)
	o.Take("b", load(2, 2, -1), t0)
	want("it is nonsense that less than nothing waits", 25, 1, 0)
	o.Take("b", load(1, 1, 0), t0)
	want("counters do not run backwards", 25, 1, 1)
	o.Keep(func(boot string) bool { return boot == "a" })
	want("what one has told that is gone stays counted, and nothing waits with it", 25, 1, 1)
	o.Take("b", load(10, 0, 0), t0)
	want("one that comes back is a new one", 25, 1, 1)
	o.Keep(func(string) bool { return false })
	want("all are gone", 25, 1, 0)
}

// A request with many rows that came to another replica counts with all of them here.
func TestRowsOfOthers(t *testing.T) {
	var o peerLoads
	o.Take("a", FunctionLoad{Arrivals: 5, ExtraRows: 40}, t0)
	o.Take("a", FunctionLoad{Arrivals: 7, ExtraRows: 166}, t0)
	s := dispatch.Stats{Arrivals: 1, ExtraRows: 3}
	if o.Add(&s); s.Arrivals != 3 || s.ExtraRows != 129 {
		t.Errorf("%d requests with %d more rows, want 3 with 129", s.Arrivals, s.ExtraRows)
	}
}

// The others' classes are added with their replica's name, since each replica numbers its own.
func TestClassesOfOthers(t *testing.T) {
	var o peerLoads
	theirs := []dispatch.ClassStats{{Arrivals: 5, Artefacts: []string{"a", "b"}}, {Arrivals: 2, Waiting: 1, Artefacts: []string{"b"}, Number: 1}}
	o.Take("boot", FunctionLoad{Arrivals: 7, Waiting: 1, Classes: theirs}, t0)
	s := dispatch.Stats{Classes: []dispatch.ClassStats{{Arrivals: 1}}}
	o.Add(&s)
	want := []dispatch.ClassStats{{Arrivals: 1}, theirs[0], theirs[1]}
	want[1].Replica, want[2].Replica = "boot", "boot"
	if !reflect.DeepEqual(s.Classes, want) || theirs[0].Replica != "" {
		t.Errorf("%+v", s.Classes)
	}
}

func TestIdleInstances(t *testing.T) {
	var o peerLoads
	tell := func(boot string, at time.Time, idle map[cluster.InstanceID]int64) {
		o.Take(boot, FunctionLoad{Idle: idle}, at)
	}
	tell("a", t0.Add(10*time.Second), map[cluster.InstanceID]int64{"later": 2000, "earlier": 9000, "busy": Busy, "here": 0, "unknown": 0})
	tell("b", t0.Add(10*time.Second), map[cluster.InstanceID]int64{"later": 4000})
	s := dispatch.Stats{Instances: map[cluster.InstanceID]time.Time{
		"later": t0, "earlier": t0.Add(5 * time.Second), "busy": t0, "here": {}, "untold": t0,
	}}
	o.Add(&s)
	want := map[cluster.InstanceID]time.Time{
		"later": t0.Add(8 * time.Second), "earlier": t0.Add(5 * time.Second), "busy": {}, "here": {}, "untold": t0,
	}
	if !maps.EqualFunc(s.Instances, want, time.Time.Equal) {
		t.Errorf("%v, want %v", s.Instances, want)
	}
}

func TestExecutedElsewhere(t *testing.T) {
	var o peerLoads
	for n := range maxPending + 10 {
		o.Note(Executed{Function: "f", Instance: cluster.InstanceID(fmt.Sprint(n)), Size: n, Exec: time.Duration(n)})
	}
	got := o.TakeExecuted(batches(7))
	if len(got) != 1+maxPending || got[0].Size != 7 || !reflect.DeepEqual(got[3], dispatch.Executed{Instance: "2", Size: 2, Exec: 2}) {
		t.Errorf("%d, of which the fourth is %+v", len(got), got[3])
	}
	o.Note(Executed{Instance: "x", Size: 9})
	if got[1].Size != 0 || got[1].Instance != "0" {
		t.Error("what was taken is written over")
	}
	if rest := o.TakeExecuted(nil); len(rest) != 1 || rest[0].Size != 9 {
		t.Errorf("%+v", rest)
	}
	if rest := o.TakeExecuted(nil); len(rest) != 0 {
		t.Errorf("%+v are taken twice", rest)
	}
}
