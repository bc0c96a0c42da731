package variants

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/lab/infaas"
)

// perArchitecture are numbers of variants of architectures. As in INFaaS' Table 6, 22
// architectures have 175.
var perArchitecture = []int{13, 9, 6, 5, 6, 6, 5, 10, 10, 10, 11, 10, 10, 7, 8, 7, 8, 8, 8, 9, 6, 3}

// hardware is a kind of hardware: what an instance costs by Table 2, what it needs of the
// resources of §4.2.1 (CPU cores, CPU memory, GPU memory, Inferentia cores), and how much faster
// than the CPU it is.
type hardware struct {
	cost  float64
	needs func(memory float64) []float64
	speed float64
}

var kinds = []hardware{
	{1, func(m float64) []float64 { return []float64{4, m, 0, 0} }, 1},
	{3, func(m float64) []float64 { return []float64{1, m, 0, 1} }, 10},
	{16, func(m float64) []float64 { return []float64{1, m / 2, m, 0} }, 13},
}

// cluster is what a machine of §6.1 has on average: CPU cores, CPU memory and GPU memory in GiB,
// and cores of Inferentia.
var cluster = []float64{8, (5*32.0 + 5*61 + 2*16) / 12, 5 * 16.0 / 12, 2 * 4.0 / 12}

// Program returns an instance of the program of §4.2.1: architectures with as many variants as
// in Table 6, in the ranges of §1, with loads by Zipf's law and objectives as in §6.1.
// Some instances run already. The profiles were never published; these are random, the same
// for a seed. Machines are those that INFaaS began with in §6.1, 5 of 12 with a GPU and 2 of 12
// with Inferentia, as few as carry the loads within a tenth.
func Program(architectures int, seed uint64) *infaas.Program {
	r := rand.New(rand.NewPCG(seed, 19))
	p := &infaas.Program{Lambda: 0.1, Limits: make([]float64, len(cluster))}
	weights := 0.0
	for a := range architectures {
		weights += 1 / float64(a+1)
	}
	for a := range architectures {
		load := 50 * float64(architectures) / (float64(a+1) * weights)
		p.Applications = append(p.Applications, application(r, perArchitecture[a%len(perArchitecture)], load))
	}
	for machines := architectures / 4; ; machines += max(1, machines/10) {
		for k, each := range cluster {
			p.Limits[k] = math.Floor(float64(machines) * each)
		}
		if _, err := p.Solve(); err == nil {
			return p
		}
	}
}

// application returns an architecture with a load.
func application(r *rand.Rand, variants int, load float64) infaas.Application {
	// One inference on four CPU cores: between 15 ms and 5.7 s, by GFLOPs.
	base := 0.015 * math.Pow(1000.0/15, r.Float64())
	memory := 0.1 + 1.4*r.Float64()
	app := infaas.Application{Load: 1.05 * load}
	slo := max(0.05, 1.5*base)
	for i := range variants {
		on := kinds[i%len(kinds)]
		batch := 1.0
		if i >= len(kinds) {
			batch = math.Exp2(float64(r.IntN(7)))
		}
		time1 := base / (on.speed * (0.7 + 0.6*r.Float64()))
		exec := time1 * (1 + 0.35*(batch-1))
		o := infaas.Option{
			Latency: time.Duration(exec * float64(time.Second)), Rate: batch / exec * (0.9 + 0.2*r.Float64()),
			Cost: on.cost * (0.9 + 0.2*r.Float64()), Loading: 0.59 + 10.4*r.Float64(), Needs: on.needs(memory * (1 + 0.05*batch)),
		}
		if exec > slo {
			o.Rate = 0
		}
		if r.IntN(6) == 0 {
			o.Running = r.IntN(3)
		}
		app.Options = append(app.Options, o)
	}
	return app
}
