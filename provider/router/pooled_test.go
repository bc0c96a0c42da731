package router

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// ways adds a third and a fourth part to a rig, as two pools are.
func (r *rig) ways() (all []cluster.Kind, parts []*fakePart) {
	all, parts = []cluster.Kind{cluster.Model}, []*fakePart{r.models}
	for _, kind := range []cluster.Kind{"third", "fourth"} {
		p := &fakePart{name: string(kind), deployed: map[string]*answering{}, ready: true}
		r.parts[kind] = p
		all, parts = append(all, kind), append(parts, p)
	}
	return all, parts
}

// to deploys the function in the part of a kind.
func (r *rig) to(kind cluster.Kind) (provider.Dispatcher, error) {
	defer r.changing.Lock("f.n")()
	f := &provider.Function{Name: "f.n", Inference: annotation.Inference{IsInference: true}}
	if fn := r.find("f.n"); fn != nil {
		f = fn.latest
	}
	return r.Controller.deploy(r.t.Context(), f, kind)
}

// A function may move on before it has arrived, at any pace and also if it cannot serve in between. No request is lost,
// and nothing is left over.
func TestMovesInARow(t *testing.T) {
	for _, pace := range []time.Duration{0, 1, moveLook - 1, moveLook, moveLook + 1, 3 * moveLook, leastStay, leastStay + moveLook, 5 * time.Second} {
		for _, slow := range []bool{false, true} {
			try(t, func(r *rig) {
				kinds, parts := r.ways()
				var d provider.Dispatcher
				at := 0
				for i := range 11 {
					at = (at + 1 + i%2) % 3
					parts[at].set(!slow || i%3 == 0, "")
					var err error
					if d, err = r.to(kinds[at]); err != nil {
						t.Fatal(err)
					}
					for _, later := range []time.Duration{0, pace / 2, moveLook, 400 * time.Millisecond} {
						found := d
						time.AfterFunc(later, func() {
							if _, err := found.Invoke(context.Background(), nil); err != nil {
								t.Errorf("pace %v, slow %v: %v", pace, slow, err)
							}
						})
					}
					time.Sleep(pace)
				}
				for _, p := range parts {
					p.set(true, "")
				}
				time.Sleep(3 * longestStay)
				r.answers(d, parts[at])
				for i, p := range parts {
					if p.has("f.n") != (i == at) {
						t.Errorf("pace %v, slow %v: %s has it: %v", pace, slow, p.name, p.has("f.n"))
					}
				}
			})
		}
	}
}

// A function that moves on while it is on its way, and is refused there, goes on to where it was on its way.
func TestAMoveOnThatFails(t *testing.T) {
	try(t, func(r *rig) {
		_, parts := r.ways()
		d, err := r.to(cluster.Model)
		if err != nil {
			t.Fatal(err)
		}
		parts[1].set(false, "")
		if d, err = r.to("third"); err != nil {
			t.Fatal(err)
		}
		parts[2].refuses = errors.New("no")
		if _, err := r.to("fourth"); !errors.Is(err, parts[2].refuses) {
			t.Fatalf("error %v", err)
		}
		r.answers(d, r.models)
		parts[1].set(true, "")
		time.Sleep(longestStay)
		r.answers(d, parts[1])
		if r.models.has("f.n") || !parts[1].has("f.n") {
			t.Error("it has not moved")
		}
	})
}

// The number of instances to which a function was scaled goes with it.
func TestAScaledFunctionMoves(t *testing.T) {
	try(t, func(r *rig) {
		_, parts := r.ways()
		if _, err := r.to(cluster.Model); err != nil {
			t.Fatal(err)
		}
		if err := r.Scale("f.n", 5); err != nil {
			t.Fatal(err)
		}
		if _, err := r.to("third"); err != nil {
			t.Fatal(err)
		}
		if n := parts[1].replicas; n != 5 {
			t.Errorf("it has %d instances where it has moved, want 5", n)
		}
	})
}

// counted is a dispatcher that counts load elsewhere.
type counted struct {
	answering
	n int
}

func (c *counted) CountElsewhere() { c.n++ }

// Load that a candidate answers counts where the function serves: where it was until it has moved, and then where it is.
func TestLoadElsewhereFollowsAMove(t *testing.T) {
	was, is := &counted{}, &counted{}
	from, to := &target{Dispatcher: was}, &target{Dispatcher: is}
	to.before.Store(from)
	to.CountElsewhere()
	to.before.Store(nil)
	from.next.Store(to)
	from.CountElsewhere()
	to.CountElsewhere()
	if was.n != 1 || is.n != 2 {
		t.Errorf("%d and %d are counted, want 1 and 2", was.n, is.n)
	}
}
