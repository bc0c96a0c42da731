package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const ms = time.Millisecond

// model has times shaped like a GPU's. A batch of b takes base + b·each on a share of 1,
// which is 4 cores or 10 % of a GPU. Twice the share is 1.6 times as fast.
type model struct {
	base, each time.Duration
	spread     float64
}

func (m model) Configs() (configs []cluster.Config) {
	for _, gpu := range []int{0, 10, 20, 40} {
		for _, cpu := range []int{1000, 2000, 4000} {
			for b := 1; b <= 32; b *= 2 {
				configs = append(configs, cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 1 << 30}})
			}
		}
	}
	return configs
}

func (m model) Exec(c cluster.Config, b int) (time.Duration, bool) {
	if b < 1 || b > 32 || c.CPU <= 0 {
		return 0, false
	}
	share := float64(c.CPU)/4000 + float64(c.GPU)/10
	return time.Duration(float64(m.base+time.Duration(b)*m.each) * math.Pow(share, -0.678)), true
}

func (m model) Spread() float64 { return m.spread }

// stream has Poisson arrivals at rate(at).
type stream struct {
	rate    func(at time.Duration) float64
	highest float64
	at      time.Duration
	random  *rand.Rand
}

func (s *stream) Rate(at time.Duration) float64 { return s.rate(at) }

func (s *stream) Next() (time.Duration, bool) {
	for {
		s.at += time.Duration(s.random.ExpFloat64() / s.highest * float64(time.Second))
		if s.random.Float64()*s.highest < s.rate(s.at) {
			return s.at, true
		}
	}
}

func poisson(rate float64, seed uint64) *stream {
	return &stream{func(time.Duration) float64 { return rate }, rate, 0, rand.New(rand.NewPCG(seed, 9))}
}

// timed has arrivals at given times.
type timed []time.Duration

func (t *timed) Next() (time.Duration, bool) {
	if len(*t) == 0 {
		return 0, false
	}
	at := (*t)[0]
	*t = (*t)[1:]
	return at, true
}

// machines returns n of the paper's machines (Table 2), with two nodes each.
func machines(n int) (nodes []cluster.Node) {
	for i := range n {
		for k := range 2 {
			nodes = append(nodes, cluster.Node{Name: fmt.Sprintf("m%04d/%d", i, k), Total: cluster.Resources{CPU: 16_000, GPU: 100, Memory: 64 << 30, GPUMemory: 11 << 30}})
		}
	}
	return nodes
}

func system(t testing.TB, name string) systems.System {
	t.Helper()
	s, err := baselines.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// three returns a setup with three functions with the same rate.
func three(t testing.TB, name string, rate float64) Setup {
	s := Setup{Nodes: machines(4), System: system(t, name), Seed: 1, Duration: 45 * time.Second, Warmup: 15 * time.Second, Overhead: ms / 2}
	for i, m := range []model{{4 * ms, ms, 0.1}, {20 * ms, 6 * ms, 0.1}, {ms, ms / 4, 0.1}} {
		s.Functions = append(s.Functions, Function{
			Function: systems.Function{Name: fmt.Sprint("f", i), SLO: 200 * ms, Percentile: 99, MaxBatch: 32}, Times: m,
			Arrivals: poisson(rate, uint64(i)), Start: 2 * time.Second,
		})
	}
	return s
}

func simulate(t testing.TB, s Setup) *Result {
	t.Helper()
	r, err := Run(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
