package router

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/web"
)

// described is an ordinary function's controller that describes all functions alike.
type described struct {
	*fakePart
	as keeper.Description
}

func (d described) Describe(name string) (keeper.Description, bool) { return d.as, d.has(name) }

func TestWatchOfAProgram(t *testing.T) {
	try(t, func(r *rig) {
		r.deployed(cluster.Process)
		in := cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "a", Node: "n", Revision: 3}, State: cluster.Ready}
		in.Config.CPU = 500
		later := in
		later.ID, later.Revision, later.State = "b", 4, cluster.Starting
		of := described{r.processes, keeper.Description{Instances: []cluster.Instance{in, later}, Ready: 1, Revision: 5, Waiting: 7, Unplaced: "no node takes it"}}
		w, ok := ordinary{of}.Watch("f.n")
		if !ok || w.Waiting != 7 || w.Revision != 5 || w.Lack != provider.LackRoom || w.Hopeless || len(w.Instances) != 2 {
			t.Fatalf("%+v", w)
		}
		if x := w.Instances[0]; x.Holds.CPU != 500 || x.Config.Batch != 1 || x.ID != "a" {
			t.Errorf("%+v", x)
		}
		of.as = keeper.Description{Crash: "it exits", Unplaced: "no node takes it"}
		if w, _ := (ordinary{of}).Watch("f.n"); !w.Hopeless || w.Lack != "" {
			t.Errorf("a program that exits: %+v", w)
		}
		if _, ok := (ordinary{of}).Watch("g.n"); ok {
			t.Error("a function that is not there")
		}
		for _, c := range []provider.PlanningController{r.Controller, NewShared(r.Controller, nil)} {
			if _, err := c.Plan(t.Context(), "f.n", time.Second, 1); web.StatusOf(err) != 400 {
				t.Errorf("a plan for a program: %v", err)
			}
		}
	})
}
