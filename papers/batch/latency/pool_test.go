package latency

import (
	"math"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

func poolNear(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// poolWaits returns the part of the batches that do not wait, and the mean wait.
func poolWaits(q *PoolQueue) (none, mean float64) {
	sum := 0.0
	for _, of := range q.Waits {
		none += of[0]
		for g, part := range of {
			sum += part
			mean += part * float64(g) * q.Step
		}
	}
	return none / sum, mean / sum
}

// M/D/1: requests go alone to one instance that is busy for ρ of the time. 1 − ρ of
// them do not wait, and the mean wait is ρS/(2(1 − ρ)) (Pollaczek and Khinchine).
func TestOneInstance(t *testing.T) {
	for _, busy := range []float64{0.2, 0.5, 0.8, 0.9} {
		q, err := Pool{Arrivals: arrival.Poisson(10 * busy), Batch: 1, Service: []float64{0.1}, Instances: 1}.Solve()
		if err != nil {
			t.Fatal(err)
		}
		none, mean := poolWaits(q)
		poolNear(t, "no wait", none, 1-busy, 0.015)
		poolNear(t, "mean", mean/(busy*0.1/(2*(1-busy))), 1, 0.02)
	}
}

// M/D/c with spread: the mean wait lies between that of M/M/c (Erlang's C) and that of
// equal times, and grows with the spread.
func TestSpreadMakesWaitsLonger(t *testing.T) {
	last := 0.0
	for _, spread := range []float64{0, 0.2, 0.4, 0.6} {
		q, err := Pool{Arrivals: arrival.Poisson(32), Batch: 1, Service: []float64{0.1}, Spread: spread, Instances: 4}.Solve()
		if err != nil {
			t.Fatal(err)
		}
		_, mean := poolWaits(q)
		// Erlang's C(4, 3.2) is 0.5964, and the mean of M/M/4 C·S/(4 − 3.2) = 0.0746 s.
		if mean <= last || mean < 0.0746/2 || mean > 0.0746 {
			t.Errorf("spread %v: %v s after %v", spread, mean, last)
		}
		last = mean
	}
}

// The parts sum to those of the batches, and the requests of full ones to their
// number.
func TestPartsSumUp(t *testing.T) {
	p := Pool{Arrivals: arrival.Poisson(100), Batch: 2, Timeout: 0.01, Formed: [][]float64{{math.Exp(-1)}}, Service: []float64{0.01, 0.015}, Instances: 1}
	q, err := p.Solve()
	if err != nil {
		t.Fatal(err)
	}
	var size [2]float64
	for k, of := range q.Waits {
		for _, part := range of {
			size[k] += part
		}
	}
	poolNear(t, "batches of one", size[0], math.Exp(-1), 1e-6)
	poolNear(t, "full ones", size[1], 1-math.Exp(-1), 1e-4)
	requests := q.AtOnce
	for _, v := range q.Filled {
		requests += v
	}
	poolNear(t, "requests of full batches", requests+2*q.Free, 2*size[1], 1e-3)
}

// A horizon ends the grid early.
func TestHorizon(t *testing.T) {
	p := Pool{Arrivals: arrival.MMPP2(5, 40, 0.1, 0.1), Batch: 1, Service: []float64{0.05}, Instances: 2}
	far, err := p.Solve()
	if err != nil {
		t.Fatal(err)
	}
	p.Horizon = 0.5
	soon, err := p.Solve()
	if err != nil {
		t.Fatal(err)
	}
	if float64(len(soon.Waits[0]))*soon.Step > 4 || len(far.Waits[0]) < len(soon.Waits[0]) {
		t.Errorf("%d steps of %v s, without horizon %d of %v s", len(soon.Waits[0]), soon.Step, len(far.Waits[0]), far.Step)
	}
}

func TestRefuses(t *testing.T) {
	fine := Pool{Arrivals: arrival.Poisson(1), Batch: 1, Service: []float64{0.1}, Instances: 1}
	for says, edit := range map[string]func(*Pool){
		"0 instances":      func(p *Pool) { p.Instances = 0 },
		"a spread of 2":    func(p *Pool) { p.Spread = 2 },
		"a spread of NaN":  func(p *Pool) { p.Spread = math.NaN() },
		"0 execution":      func(p *Pool) { p.Service = nil },
		"times are 0":      func(p *Pool) { p.Service = []float64{0} },
		"times and 0 matr": func(p *Pool) { p.Batch, p.Timeout = 2, 1 },
	} {
		p := fine
		edit(&p)
		if _, err := p.Solve(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for name, p := range map[string]Pool{
		"Poisson": {Arrivals: arrival.Poisson(100), Batch: 1, Service: []float64{0.1}, Instances: 13},
		"MMPP":    {Arrivals: arrival.MMPP2(20, 200, 1, 2), Batch: 1, Service: []float64{0.03}, Instances: 5, Horizon: 0.2},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.Solve(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
