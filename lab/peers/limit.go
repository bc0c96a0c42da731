package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/profiler"
)

// engineTimes has the median time of a batch in ONNX Runtime on one core, with nothing around it.
type engineTimes map[int]time.Duration

// timeEngine measures them up to largeBatch, or until one takes longer than the objective.
func (u *run) timeEngine(ctx context.Context, file string, slo time.Duration) (engineTimes, error) {
	out := filepath.Join(u.dir, "profile.json")
	c := exec.CommandContext(ctx, u.o.Program, "profile", "model", file, "--out", out, "--threads", "1",
		"--max-batch", strconv.Itoa(largeBatch), "--until", slo.String())
	said := new(strings.Builder)
	c.Stderr = said
	if err := onCore(u.Core, c.Run); err != nil {
		return nil, fmt.Errorf("time the engine: %w: %s", err, strings.TrimSpace(said.String()))
	}
	text, err := os.ReadFile(out)
	var measured profiler.Measured
	if err = errors.Join(err, json.Unmarshal(text, &measured)); err != nil {
		return nil, fmt.Errorf("time the engine: %w", err)
	}
	times := engineTimes{}
	for _, m := range measured.Profile.Measurements {
		if m.Threads == 1 {
			times[m.Batch] = time.Duration(m.Median * float64(time.Microsecond))
		}
	}
	if times.loop(slo) == 0 {
		return nil, fmt.Errorf("time the engine: it executes nothing within %v: %v", slo, times)
	}
	return times, nil
}

// loop is the highest rate in requests/s at which the engine executes batches one after the other, of the
// best size that meets the objective at all.
func (t engineTimes) loop(slo time.Duration) (rate float64) {
	for n, takes := range t {
		if takes <= slo {
			rate = max(rate, float64(n)/takes.Seconds())
		}
	}
	return rate
}

// limit is the highest rate in requests/s at which a server without any time of its own would keep the
// objective, with the arrivals of the trials. No server with this engine on one core gets further but by chance.
func (t engineTimes) limit(s *subject) (float64, error) {
	search := Search{Start: t.loop(s.SLO) / growth, Budget: time.Hour}
	for {
		rate, done := search.Next()
		if done {
			return search.Low, nil
		}
		d := s.counted(rate)
		arrivals, err := load.Poisson.Times(rate, d, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			return 0, err
		}
		best := 0.0
		for most := range t {
			best = max(best, t.kept(arrivals, s.SLO, most))
		}
		search.Saw(rate, best >= attainment, d)
	}
}

// kept is the part of the requests that are answered within the objective if the engine, whenever it is free,
// takes the oldest requests that can still be in time, at most most. A batch takes the time of the next larger
// measured one.
//
// For example, with times of 10 ms and 15 ms for batches of 1 and 2, and an objective of 20 ms, requests at
// 0, 1, 2 and 3 ms: the first is answered at 10 ms. The second and third would be answered at 25 ms, which is
// late, and alone the second is in time, at 20 ms. The others would be late, so half are kept.
func (t engineTimes) kept(arrivals []time.Duration, slo time.Duration, most int) float64 {
	free, good := time.Duration(0), 0
	for i := 0; i < len(arrivals); {
		free = max(free, arrivals[i])
		if free+t.of(1) > arrivals[i]+slo { // It is lost.
			i++
			continue
		}
		n := 1
		for n < most && i+n < len(arrivals) && arrivals[i+n] <= free && free+t.of(n+1) <= arrivals[i]+slo {
			n++
		}
		free += t.of(n)
		good += n
		i += n
	}
	return float64(good) / float64(max(1, len(arrivals)))
}

// of is the time of a batch of n. No batch is larger than the largest measured one.
func (t engineTimes) of(n int) time.Duration {
	takes := time.Duration(-1)
	for size, x := range t {
		if size >= n && (takes < 0 || x < takes) {
			takes = x
		}
	}
	return takes
}
