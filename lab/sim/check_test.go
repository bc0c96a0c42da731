package sim

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Two runs of the same setup are the same on any number of cores. With another seed they
// differ.
func TestRunsCanBeRepeated(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(cores)
	for _, name := range baselines.Names() {
		run := func(seed uint64, cores int) *Result {
			runtime.GOMAXPROCS(cores)
			s := three(t, name, 300)
			s.Seed, s.Sample, s.Duration, s.Warmup = seed, time.Second, 5*time.Second, 2*time.Second
			for i := range s.Functions {
				s.Functions[i].Start = time.Second
			}
			r := simulate(t, s)
			r.Wall, r.Decide, r.DecideMax = 0, 0, 0
			return r
		}
		first := run(1, 1)
		if !reflect.DeepEqual(first, run(1, 4)) {
			t.Errorf("%s: two runs of the same setup differ", name)
		}
		if other := run(2, cores); other.Functions[0].Latency.Mean() == first.Functions[0].Latency.Mean() {
			t.Errorf("%s: another seed changes nothing", name)
		}
	}
}

func TestSetupsThatCannotBe(t *testing.T) {
	for want, change := range map[string]func(*Setup){
		"has no node":             func(s *Setup) { s.Nodes = nil },
		"node 2 has the name":     func(s *Setup) { s.Nodes[1].Name = s.Nodes[0].Name },
		"there is no function":    func(s *Setup) { s.Functions = nil },
		"function 2 has the name": func(s *Setup) { s.Functions[1].Name = "f0" },
		"no execution times":      func(s *Setup) { s.Functions[0].Times = nil },
		"no arrivals":             func(s *Setup) { s.Functions[0].Arrivals = nil },
		"f0: objective 0s":        func(s *Setup) { s.Functions[0].SLO = 0 },
		"cold start -":            func(s *Setup) { s.Functions[0].Start = -1 },
		"from 3 to 2 instances":   func(s *Setup) { s.Functions[0].MinInstances, s.Functions[0].MaxInstances = 3, 2 },
		"duration 0s":             func(s *Setup) { s.Duration = 0 },
		"warm-up 2m":              func(s *Setup) { s.Warmup = 2 * time.Minute },
		"none may be negative":    func(s *Setup) { s.Overhead = -1 },
		"the system has no name":  func(s *Setup) { s.System = systems.System{} },
		"no rate": func(s *Setup) {
			s.Fluid, s.Functions[0].Arrivals = true, &timed{0}
		},
	} {
		s := three(t, systems.INFless, 1)
		change(&s)
		if _, err := Run(context.Background(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestARunCanBeBrokenOff(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := three(t, systems.FaaSInfer, 300)
	s.Duration, s.Warmup = 15*time.Second, 0
	told := 0.0
	s.Progress = func(done float64) {
		if done < told {
			t.Errorf("progress goes back from %v to %v", told, done)
		}
		if told = done; done > 0.3 {
			cancel()
		}
	}
	if _, err := Run(ctx, s); !errors.Is(err, context.Canceled) || told > 0.9 {
		t.Errorf("%v at %v", err, told)
	}
}

func TestProgressEndsAtOne(t *testing.T) {
	s := three(t, systems.FaaSInfer, 1)
	told := 0.0
	s.Progress = func(done float64) { told = done }
	if simulate(t, s); told != 1 {
		t.Errorf("the last progress is %v", told)
	}
}
