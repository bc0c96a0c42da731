package gpu

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// course is what happened second by second, for people who look for the cause of a late request.
type course struct {
	models []string
	slo    time.Duration

	mu sync.Mutex
	// latencies are those of each model's requests by the second of their time; an answer that
	// did not come counts as slower than all.
	latencies [][][]time.Duration
	// instances says at each second which instances there are.
	instances []string
}

func (s Served) newCourse() *course {
	c := &course{models: s.Models, slo: s.SLO, latencies: make([][][]time.Duration, len(s.Models))}
	for n := range c.latencies {
		c.latencies[n] = make([][]time.Duration, int((s.Ramp+s.Hold)/time.Second)+1)
	}
	return c
}

// missing is the latency of a request without a good answer.
const missing = time.Hour

func (c *course) saw(x load.Observed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := x.Latency
	if !x.Good {
		took = missing
	}
	if at := int(x.At / time.Second); at < len(c.latencies[x.Target]) {
		c.latencies[x.Target][at] = append(c.latencies[x.Target][at], took)
	}
}

// watch notes the instances each second, until ctx ends.
func (c *course) watch(ctx context.Context, d *rig.Deployed) {
	tick := time.Tick(time.Second)
	for {
		records, _ := d.Records() // An instance that has just ended is not missed.
		count := map[string]int{}
		for _, x := range records {
			name, _, _ := strings.Cut(x.Spec.Function, ".")
			count[fmt.Sprintf("%s %v", name, x.Spec.Config)]++
		}
		var all []string
		for name, n := range count {
			all = append(all, fmt.Sprintf("%d × %s", n, name))
		}
		slices.Sort(all)
		c.mu.Lock()
		c.instances = append(c.instances, strings.Join(all, ", "))
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

func (c *course) print(to io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, model := range c.models {
		for at, all := range c.latencies[n] {
			if len(all) == 0 {
				continue
			}
			slices.Sort(all)
			late := 0
			for _, took := range all {
				if took > c.slo {
					late++
				}
			}
			there := ""
			if at < len(c.instances) {
				there = c.instances[at]
			}
			fmt.Fprintf(to, "second %2d: %s %4d requests, %3d late, p50 %.1f, p99 %.1f, most %.1f ms; %s\n", at, model, len(all), late,
				rig.Milliseconds(all[len(all)/2]), rig.Milliseconds(all[len(all)*99/100]), rig.Milliseconds(all[len(all)-1]), there)
		}
	}
}
