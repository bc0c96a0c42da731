package promise

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/attainment"
)

// scenario is a load with what is wrong with the prediction and with the machine.
type scenario struct {
	name      string
	functions []attainment.Function
	// shape is the load as a part of the peak; it repeats after period, 0 for never.
	shape  func(at time.Duration) float64
	period time.Duration
	// pace multiplies the times of executions at a time, of a run that takes length; nil for none.
	pace func(at, length time.Duration) float64
	// base and row multiply the true times in the prediction.
	base, row float64
	// rate, if not 0, is the highest load of each function in requests/s, whatever its capacity.
	rate float64
	// cores are those of the machine, 0 for plenty.
	cores int
}

// plenty is the number of cores where they are not the subject.
const plenty = 16

// maxRate is that of the attainment scenarios in requests/s.
const maxRate = 2500

// scenarios are those of the attainment bench, whose load is repeated until there are enough requests, and
// further ones of what a prediction cannot know.
func scenarios() []scenario {
	var all []scenario
	for _, s := range attainment.Covering() {
		x := scenario{
			name: s.Name, functions: s.Functions, shape: s.Shape, period: s.Length, base: 1.04, row: 0.96,
		}
		switch s.Beside {
		case "deploying": // The other model is measured for ten seconds.
			x.pace = during(2*time.Second, 12*time.Second, s.Length, 1.2)
		case "taken":
			x.pace = during(2*time.Second, 12*time.Second, s.Length, 1.3)
		}
		all = append(all, x)
	}
	with := func(name string, change func(*scenario)) {
		s := scenario{
			name: name, functions: []attainment.Function{{Model: "lstm-2365", Payload: attainment.Binary, Peak: 1.5}},
			shape: func(time.Duration) float64 { return 1 }, base: 1, row: 1,
		}
		change(&s)
		all = append(all, s)
	}
	with("neighbour", func(s *scenario) { s.pace = neighbour() })
	with("slow_clock", func(s *scenario) { s.pace = slowClock })
	with("drift", func(s *scenario) { s.pace = drift })
	with("predicted_half", func(s *scenario) { s.base, s.row = 0.5, 0.5 })
	with("predicted_double", func(s *scenario) { s.base, s.row = 2, 2 })
	with("other_machine", func(s *scenario) { s.base, s.row = 2.5, 0.4 })
	with("rare", func(s *scenario) {
		s.rate = 4
		for _, model := range []string{"mnist", "dssm", "textcnn-69"} {
			s.functions = append(s.functions, attainment.Function{Model: model, Payload: attainment.Binary})
		}
	})
	with("too_small", func(s *scenario) { s.cores = 1 })
	return all
}

// during is a pace of by from one time to another of each period.
func during(from, to, period time.Duration, by float64) func(at, length time.Duration) float64 {
	return func(at, _ time.Duration) float64 {
		if at %= period; at >= from && at < to {
			return by
		}
		return 1
	}
}

// neighbour is a program on the same machine that comes and goes: 20 s alone, then 10 s with it on average.
func neighbour() func(at, length time.Duration) float64 {
	random := rand.New(rand.NewPCG(3, 5))
	var changes []time.Duration
	for last := time.Duration(0); last < 24*time.Hour; {
		mean := 20 * time.Second
		if len(changes)%2 == 1 {
			mean = 10 * time.Second
		}
		last += time.Duration(random.ExpFloat64() * float64(mean))
		changes = append(changes, last)
	}
	return func(at, _ time.Duration) float64 {
		if n, _ := slices.BinarySearch(changes, at+1); n%2 == 1 {
			return 1.5
		}
		return 1
	}
}

// slowClock is a processor whose clock falls to 0.63 of its rate for the second third of a run.
func slowClock(at, length time.Duration) float64 {
	if at > length/3 && at < 2*length/3 {
		return 1.6
	}
	return 1
}

// drift is a machine that becomes slower by half in a run, and trembles within minutes.
func drift(at, length time.Duration) float64 {
	return 1 + 0.5*at.Seconds()/length.Seconds() + 0.1*math.Sin(at.Seconds()/60)
}

// load are a function's arrivals at random. It implements [sim.Arrivals] and [sim.Rate].
type load struct {
	scenario *scenario
	peak     float64
	at, end  time.Duration
	random   *rand.Rand
	// told multiplies the rate that is told. early is how long before it is.
	told  float64
	early time.Duration
}

// Rate implements [sim.Rate].
func (l *load) Rate(at time.Duration) float64 { return l.told * max(l.rate(at), l.rate(at+l.early)) }

func (l *load) rate(at time.Duration) float64 {
	if l.scenario.period > 0 {
		at %= l.scenario.period
	}
	return l.peak * l.scenario.shape(at)
}

// Next implements [sim.Arrivals].
func (l *load) Next() (time.Duration, bool) {
	for l.at < l.end {
		l.at += time.Duration(l.random.ExpFloat64() / l.peak * float64(time.Second))
		if l.random.Float64()*l.peak < l.rate(l.at) {
			return l.at, l.at < l.end
		}
	}
	return l.at, false
}

// mean is the mean of the shape.
func (s *scenario) mean() float64 {
	period, sum := s.period, 0.0
	if period == 0 {
		period = time.Second
	}
	const points = 1000
	for i := range points {
		sum += s.shape(period * time.Duration(i) / points)
	}
	return sum / points
}
