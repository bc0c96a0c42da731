package scenario

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// maxParts is the maximum number of members of a set.
const maxParts = 64

// readSets lets a model be cut over the members that the key "parts" names. Then each config is
// one of a set, which executes "concurrency" batches at the same time.
func readSets(o *fleet.Object, f *Function) {
	parts, concurrency := o.Ints("parts", 2, maxParts), o.Int("concurrency", 1, maxParts, 0)
	if concurrency > 0 && parts == nil {
		o.Fail("concurrency", "it needs parts: only a model that is cut executes several batches at the same time")
	}
	if f.Times != nil && parts != nil {
		f.Times = &setTimes{f.Times, parts, concurrency}
	}
}

// setTimes are the times of sets: those of the model on the resources of all members together.
// The simulation leaves out what the members exchange.
type setTimes struct {
	systems.Times
	parts       []int
	concurrency int
}

// Configs implements [systems.Times]. A set's resources can be divided among its members.
func (t *setTimes) Configs() (all []cluster.Config) {
	for _, c := range t.Times.Configs() {
		for _, n := range t.parts {
			if c.CPU%n == 0 && c.GPU%n == 0 {
				c.Parts, c.Concurrency = n, t.concurrency
				all = append(all, c)
			}
		}
	}
	return all
}

// Exec implements [systems.Times].
func (t *setTimes) Exec(c cluster.Config, b int) (time.Duration, bool) {
	c.Parts, c.Concurrency = 0, 0
	return t.Times.Exec(c, b)
}
