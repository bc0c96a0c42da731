package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// machine takes twice as long as a model predicts; a quota causes half of that.
type machine struct {
	model
	quota time.Duration
}

func (m machine) Exec(c cluster.Config, b int) (time.Duration, bool) {
	t, ok := m.model.Exec(c, b)
	return 2 * t, ok
}

func (m machine) Factor(r *rand.Rand) float64 { return 0.5 + r.Float64() }

func (m machine) Quota(cluster.Config) (part, period time.Duration) { return m.quota, 10 * ms }

// Executions take the machine's true times. Decisions follow the system's predictions.
func TestTruth(t *testing.T) {
	known := model{base: 20 * ms, each: ms}
	run := func(truth Truth) *FunctionResult {
		t.Helper()
		system, err := baselines.ByName(systems.Default)
		if err != nil {
			t.Fatal(err)
		}
		few := &stream{rate: func(time.Duration) float64 { return 2 }, highest: 2, random: rand.New(rand.NewPCG(1, 1))}
		r, err := Run(t.Context(), Setup{
			Nodes:  []cluster.Node{{Name: "one", Total: cluster.Resources{CPU: 1000, Memory: 1 << 30}}},
			System: system, Duration: time.Minute, Warmup: 10 * time.Second,
			Functions: []Function{{Function: systems.Function{Name: "f", SLO: time.Second}, Times: known, Truth: truth, Arrivals: few, MinInstances: 1, MaxInstances: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Functions[0].Configs) == 0 {
			t.Fatal("there was no instance")
		}
		return &r.Functions[0]
	}
	plain, slow, half := run(nil), run(machine{known, 10 * ms}), run(machine{known, 5 * ms})
	if plain.Configs[0].Config != slow.Configs[0].Config {
		t.Errorf("configs %v and %v", plain.Configs[0].Config, slow.Configs[0].Config)
	}
	// The factors are from 0.5 to 1.5; at half the time of a core 4 ms take 4 to 9.
	if got := float64(slow.ExecMean) / float64(plain.ExecMean); got < 1.8 || got > 2.2 {
		t.Errorf("executions take %v, by the model %v", slow.ExecMean, plain.ExecMean)
	}
	if got := float64(half.ExecMean) / float64(slow.ExecMean); got < 1.7 || got > 2.2 {
		t.Errorf("executions take %v with half the core, %v with all", half.ExecMean, slow.ExecMean)
	}
}
