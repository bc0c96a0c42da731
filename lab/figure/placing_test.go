package figure

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// placingModel takes 10 ms a request, in batches of one, on one core.
type placingModel struct{}

func (placingModel) Configs() []cluster.Config {
	return []cluster.Config{{Batch: 1, Resources: cluster.Resources{CPU: 1000}}}
}
func (placingModel) Exec(cluster.Config, int) (time.Duration, bool) {
	return 10 * time.Millisecond, true
}
func (placingModel) Spread() float64 { return 0 }

// placingSetup has machines of two nodes with four cores each.
func placingSetup(t *testing.T, system string, machines int) (sim.Setup, systems.System) {
	t.Helper()
	p, err := baselines.ByName(system)
	if err != nil {
		t.Fatal(err)
	}
	s := sim.Setup{
		Machine:   func(node string) string { name, _, _ := strings.Cut(node, "/"); return name },
		Functions: []sim.Function{{Function: systems.Function{Name: "f", SLO: 100 * time.Millisecond}, Times: placingModel{}}},
	}
	for i := range machines {
		for _, part := range []string{"/0", "/1"} {
			s.Nodes = append(s.Nodes, cluster.Node{Name: string(rune('a'+i)) + part, Total: cluster.Resources{CPU: 4000}})
		}
	}
	return s, p
}

// Ten instances of one core need two machines of eight cores; six cores are left.
func TestFill(t *testing.T) {
	for _, name := range []string{systems.INFless, systems.FaaSInfer} {
		s, p := placingSetup(t, name, 4)
		got, load, err := fill(p, s, []float64{1}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if got.Instances != 10 || load <= 0 {
			t.Errorf("%s: %d instances at a load of %v", name, got.Instances, load)
		}
		if want := 100 * 6.0 / 16; got.Fragments < want-1e-9 || got.Fragments > want+1e-9 {
			t.Errorf("%s: fragments %v %%, want %v", name, got.Fragments, want)
		}
		if got.Held < 5.99 || got.Held > 6.01 || got.Took <= 0 || got.RPS <= 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// If the cluster has no room for n instances, Fill returns as many as fit.
func TestFillBeyondTheCluster(t *testing.T) {
	s, p := placingSetup(t, systems.INFless, 1)
	got, _, err := fill(p, s, []float64{1}, 100)
	if err != nil || got.Instances != 8 {
		t.Errorf("%d instances, %v", got.Instances, err)
	}
}

func TestCapacityIsChecked(t *testing.T) {
	s, _ := placingSetup(t, systems.INFless, 1)
	five := cluster.Config{Resources: cluster.Resources{CPU: 5000}}
	err := new(Plan).measure("x", s, scaling.Plan{Start: []scaling.Start{{Node: "a/0", Config: five}}})
	if err == nil || !strings.Contains(err.Error(), "a/0") {
		t.Errorf("error %v", err)
	}
}
