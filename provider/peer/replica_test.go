package peer

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// reports are other replicas whose loads a test sets.
type reports struct {
	Others
	loads []Load
}

func (r *reports) Loads() []Load { return r.loads }

// A deleted function is forgotten, although another replica reports it once more after that. What a
// served function has counted stays, even when no other replica has a load of it any more.
func TestDeletedFunctionsAreForgotten(t *testing.T) {
	others := &reports{}
	r := NewReplica(func() bool { return true }, others)
	look := func(load map[string]FunctionLoad, served ...string) (arrivals uint64) {
		others.loads = []Load{{Boot: "b", Functions: load}}
		r.Listen(t0)
		for _, name := range served {
			s := dispatch.Stats{Instances: map[cluster.InstanceID]time.Time{}}
			r.Add(name, &s)
			arrivals += s.Arrivals
		}
		return arrivals
	}
	look(map[string]FunctionLoad{"kept": {Arrivals: 3}}, "kept")
	if got := look(map[string]FunctionLoad{"kept": {Arrivals: 7}}, "kept"); got != 4 {
		t.Fatalf("the other replica's 4 requests count as %d", got)
	}
	for i := range 1000 {
		name := fmt.Sprint("f", i)
		load := map[string]FunctionLoad{name: {Arrivals: 1}}
		look(load, name, "kept")
		r.Forget(name)
		others.loads[0].Executed = []Executed{{Function: name, Size: 1}}
		look(load, "kept")
		look(nil, "kept")
		r.Executed(name, nil)
		if n := len(r.functions); n > 2 {
			t.Fatalf("%d functions are known after %d deletions", n, i+1)
		}
	}
	if got := look(nil, "kept"); got != 4 || len(r.functions) != 1 {
		t.Errorf("of the function that stays %d of 4 requests are known, and %d functions", got, len(r.functions))
	}
}
