package command

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// aProfile returns a profile with 10 ms for one request and 2 ms for each further one, on
// one core.
func aProfile() *profiler.Profile {
	p := &profiler.Profile{Model: "m", Engine: "e", Machine: "x", Memory: 64 << 20}
	for _, batch := range []int{1, 2, 4, 8} {
		us := float64(8000 + 2000*batch)
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: batch, Threads: 1, Median: us, P95: us, CPU: us, Runs: 1})
	}
	return p
}

func TestCheckModel(t *testing.T) {
	loose := checkModel(aProfile(), 8, 0, time.Second)
	if best, ok := loose.cheapest(); !ok || best.Config.Batch != 8 || loose.verdict() != nil {
		t.Errorf("with a second, the cheapest is %+v, %v", best, loose.verdict())
	}
	tight := checkModel(aProfile(), 8, 0, 20*time.Millisecond)
	best, ok := tight.cheapest()
	if !ok || best.Config.CPU != 1000 || best.Exec > 20*time.Millisecond {
		t.Errorf("with 20 ms, the cheapest is %+v", best)
	}
	for _, c := range tight.configs {
		if c.meets && c.Exec > 20*time.Millisecond {
			t.Errorf("%v takes %v and is said to be in time", c.Config, c.Exec)
		}
	}
	none := checkModel(aProfile(), 8, 0, time.Millisecond)
	if err := none.verdict(); err == nil || !strings.Contains(err.Error(), "smallest objective") {
		t.Errorf("with 1 ms: %v", err)
	}
	if limited := checkModel(aProfile(), 8, 500, time.Second); len(limited.configs) == 0 || limited.configs[len(limited.configs)-1].Config.CPU > 500 {
		t.Errorf("with a limit of half a core: %+v", limited.configs)
	}
}

// The smallest objective in the error can be met.
func TestCheckModelSaysWhatCanBeMet(t *testing.T) {
	p := aProfile()
	err := checkModel(p, 8, 0, time.Millisecond).verdict()
	_, text, _ := strings.Cut(err.Error(), "about ")
	slo, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkModel(p, 8, 0, slo).verdict(); err != nil {
		t.Error(err)
	}
}
