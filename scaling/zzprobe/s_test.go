package zzprobe

import (
	"fmt"
	"testing"

	"github.com/faas-infer/faas-infer/policy"
	"github.com/faas-infer/faas-infer/sim/scenario"
	"github.com/faas-infer/faas-infer/scaling"
	"time"
	"slices"
	"sort"
)

func TestScale(t *testing.T) {
	sc, err := scenario.Load("scale", scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	sys, _ := policy.ByName("faas-infer")
	s, err := sc.Setup(sys, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, load := range []float64{0.5,1, 20} {
		var functions []scaling.Function
		for k, f := range s.Functions {
			r := sc.Functions[k].Peak*load
			functions = append(functions, scaling.Function{
				Name: f.Name, SLO: f.SLO, Queue: sys.Queue(), Rate: r,
				Configs: sys.Candidates(f.Function, r, f.Times),
			})
		}
		nodes := slices.Clone(s.Nodes)
		for i := range nodes {
			nodes[i].Free = nodes[i].Total
		}
		e := sys.Scaler()
		b := time.Now()
		plan := e.Scale(time.Unix(0, 0), functions, nodes)
		fmt.Println("load", load, "instances", len(plan.Start), time.Since(b))
		type nn struct {cpu, gpu int; what string}
		by := map[string]*nn{}
		n := map[string]int{}
		for _, x := range plan.Start {
			if by[x.Node] == nil { by[x.Node] = &nn{} }
			y := by[x.Node]
			y.cpu += x.Config.CPU; y.gpu += x.Config.GPU; y.what += fmt.Sprint(" ", x.Function, x.Config)
			n[x.Function]++
		}
		var names []string
		for k := range by { names = append(names, k) }
		sort.Strings(names)
		fmt.Println(len(names), "nodes", plan.Unplaced)
		if len(names) < 40 {
			for _, k := range names { fmt.Println(k, by[k].cpu, by[k].gpu, by[k].what) }
			for k, f := range functions { fmt.Print(f.Name, " slo ", f.SLO, " rate ", f.Rate, " n ", n[f.Name], sc.Functions[k].Name, "; ") }
			fmt.Println()
		}
	}
}
