// Package harmonybatch groups applications of one model as HarmonyBatch does (Chen et al., IWQoS 2024, arXiv
// 2405.05633): each group has one serverless function on cores or on a part of a GPU, and its batches mix the
// requests of all of its applications. It compares the grouping with others at the paper's prices; it executes
// nothing. Begin with [Model.HarmonyBatch] and [Run].
package harmonybatch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Application is a stream of requests for the model that come at random.
type Application struct {
	// SLO is the objective, Rate in requests/s.
	SLO  time.Duration
	Rate float64
}

// Curve is a time on a function with c vCPU: a·exp(−c/b) + least (Eq. 1), in s and vCPU.
type Curve struct{ A, B, Least float64 }

func (k Curve) at(cpu float64) float64 { return k.A*math.Exp(-cpu/k.B) + k.Least }

// Model has a model's times.
type Model struct {
	Name string
	// Mean and Max are the times on cores of batches of 1, 2, ….
	Mean, Max []Curve
	// Each and Fixed are the line of a batch's time on a whole GPU in s (Eq. 2).
	Each, Fixed float64
	// Slice is the length of a GPU's time slice for each GiB in s. Whole is a GPU's memory in GiB, and Least
	// what the model needs of it.
	Slice        float64
	Whole, Least int
}

// Function is a serverless function. It has CPU, or the GPU and a third of a vCPU for each GiB of that.
type Function struct {
	// CPU is in vCPU, 0 on a GPU. GPU is in GiB, 0 on cores.
	CPU   float64
	GPU   int
	Batch int
	// Timeouts are, by application, how long the first request of a batch waits.
	Timeouts []time.Duration
	// Cost is in $ for each request (Eq. 6).
	Cost float64
}

// Group has the applications that share a function, by objective.
type Group struct {
	Applications []Application
	Function
}

func (g *Group) rate() (sum float64) {
	for _, a := range g.Applications {
		sum += a.Rate
	}
	return sum
}

// The prices in $ (§V-A): of a second of a vCPU and of a GiB of a GPU, and of a call.
const (
	priceCPU  = 1.3e-5
	priceGPU  = 1.5e-5
	priceCall = 1.3e-7
)

// What the paper does not say is taken from the authors' program (icloud-ecnu/HarmonyBatch): a time on a part of
// a GPU is at most margin times Eq. 4, a GPU is billed by whole seconds, and each GiB brings gpuCPU of a vCPU.
const (
	margin = 1.2
	gpuCPU = 1.0 / 3
)

// The space of functions (§IV-B).
const (
	cpuStep, cpuSteps = 0.05, 320
	maxGPUBatch       = 32
)

var errNoFunction = errors.New("no function meets the objectives")

// equivalent is the mean time that a batch gathers requests if each application has its own timeout (Eq. 5).
// Timeouts must ascend.
func equivalent(timeouts []float64, of []Application) float64 {
	t, rate := timeouts[0], of[0].Rate
	for i := 1; i < len(of); i++ {
		t += of[i].Rate / (rate + of[i].Rate) * (1 - math.Exp(-rate*(timeouts[i]-t))) / rate
		rate += of[i].Rate
	}
	return t
}

// provision returns the cheapest function for applications that are sorted by objective. The paper searches with
// its two theorems; the space is small, so this tries all of it.
func (m *Model) provision(of []Application, cpuOnly bool) (*Group, error) {
	g := &Group{Applications: of, Function: Function{Cost: math.Inf(1)}}
	rate := g.rate()
	consider := func(f Function, longest, cost float64) {
		var timeouts []float64
		for _, a := range of {
			timeouts = append(timeouts, a.SLO.Seconds()-longest)
		}
		fills := f.Batch == 1 || timeouts[0] >= 0 && math.Floor(rate*equivalent(timeouts, of))+1 >= float64(f.Batch)
		if f.Cost = (cost + priceCall) / float64(f.Batch); timeouts[0] < 0 || !fills || f.Cost >= g.Cost {
			return
		}
		for _, t := range timeouts {
			if f.Batch == 1 {
				t = 0
			}
			f.Timeouts = append(f.Timeouts, time.Duration(t*float64(time.Second)))
		}
		g.Function = f
	}
	for b := range m.Mean {
		for n := 1; n <= cpuSteps; n++ {
			cpu := float64(n) * cpuStep
			consider(Function{CPU: cpu, Batch: b + 1}, m.Max[b].at(cpu), m.Mean[b].at(cpu)*cpu*priceCPU)
		}
	}
	for gpu := m.Least; gpu <= m.Whole && !cpuOnly; gpu++ {
		for b := 1; b <= maxGPUBatch; b++ {
			mean, longest := m.onGPU(gpu, b)
			consider(Function{GPU: gpu, Batch: b}, longest, math.Ceil(mean)*float64(gpu)*(priceGPU+gpuCPU*priceCPU))
		}
	}
	if g.Batch == 0 {
		return nil, fmt.Errorf("%s within %v at %.3g requests/s: %w", m.Name, of[0].SLO, rate, errNoFunction)
	}
	return g, nil
}

// onGPU returns the mean and the longest time in s of a batch on a part of a GPU (Eq. 3 and 4).
func (m *Model) onGPU(gpu, batch int) (mean, longest float64) {
	alone := m.Each*float64(batch) + m.Fixed
	if gpu == m.Whole {
		return alone, alone
	}
	turns := math.Ceil(alone / (float64(gpu) * m.Slice))
	return alone * float64(m.Whole) / float64(gpu), margin * (turns*float64(m.Whole-gpu)*m.Slice + alone)
}

// Alone gives each application a function of its own, on cores only if cpuOnly is true.
func (m *Model) Alone(all []Application, cpuOnly bool) (groups []*Group, err error) {
	for _, a := range sorted(all) {
		g, err := m.provision([]Application{a}, cpuOnly)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// Together gives all applications one function.
func (m *Model) Together(all []Application) ([]*Group, error) {
	g, err := m.provision(sorted(all), false)
	return []*Group{g}, err
}

// HarmonyBatch is Algorithm 1. It merges neighbours by objective: first those on cores, until together they are
// above the rate at which a GPU pays, then those beside one on a GPU. It merges only what then costs less.
func (m *Model) HarmonyBatch(all []Application) ([]*Group, error) {
	groups, err := m.Alone(all, false)
	if err != nil {
		return nil, err
	}
	knee, rate := m.knee(groups[0].Applications[0].SLO), 0.0
	for i, j := 0, 0; i < len(groups); i++ {
		if groups[i].GPU > 0 {
			j, rate = i+1, 0
			continue
		}
		if rate += groups[i].rate(); rate > knee {
			groups, _ = m.merge(groups, j, i+1)
			i, j, rate = j, j+1, 0
		}
	}
	for i := 0; i < len(groups)-1; {
		merged := false
		if groups[i].GPU > 0 || groups[i+1].GPU > 0 {
			groups, merged = m.merge(groups, i, i+2)
		}
		switch {
		case !merged:
			i++
		case i > 0:
			i--
		}
	}
	return groups, nil
}

// merge makes one of the groups from low to before high if that costs less.
func (m *Model) merge(groups []*Group, low, high int) ([]*Group, bool) {
	var of []Application
	for _, g := range groups[low:high] {
		of = append(of, g.Applications...)
	}
	g, err := m.provision(of, false)
	if err != nil || g.Cost >= Cost(groups[low:high]) {
		return groups, false
	}
	return slices.Replace(slices.Clone(groups), low, high, g), true
}

// knee is the rate from which on one application with that objective is cheaper on a GPU (Fig. 7). Rates above
// maxRate count as that.
func (m *Model) knee(slo time.Duration) float64 {
	const maxRate = 40
	low, high := 0.0, float64(maxRate)
	for range 20 {
		middle := (low + high) / 2
		if g, err := m.provision([]Application{{slo, middle}}, false); err != nil || g.GPU == 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// Best is the cheapest division into groups of neighbours by objective. It tries all of them: the cheapest way to
// divide the first n applications ends with one of n groups.
func (m *Model) Best(all []Application) ([]*Group, error) {
	all = sorted(all)
	best := make([][]*Group, len(all)+1)
	paid := make([]float64, len(all)+1)
	for n := 1; n <= len(all); n++ {
		paid[n] = math.Inf(1)
		for from := range n {
			g, err := m.provision(all[from:n], false)
			if err != nil || math.IsInf(paid[from], 1) {
				continue
			}
			if sum := paid[from] + g.Cost*g.rate(); sum < paid[n] {
				paid[n], best[n] = sum, append(slices.Clone(best[from]), g)
			}
		}
	}
	if math.IsInf(paid[len(all)], 1) {
		return nil, errNoFunction
	}
	return best[len(all)], nil
}

// Cost is the mean cost of a request in $ (Eq. 7).
func Cost(groups []*Group) float64 {
	cost, rate := 0.0, 0.0
	for _, g := range groups {
		cost, rate = cost+g.Cost*g.rate(), rate+g.rate()
	}
	return cost / rate
}

func sorted(all []Application) []Application {
	return slices.SortedStableFunc(slices.Values(all), func(a, b Application) int { return cmp.Compare(a.SLO, b.SLO) })
}
