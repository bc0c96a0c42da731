package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/control/objective"
)

// makeshift are the times by which an instance goes on that is too slow by what was
// seen, if the function has no other: at most twice the promised ones, or these; nil if
// by these it is too slow as well, or they are not known.
func (c *Controller) makeshift(in *instance) []time.Duration {
	if len(in.promised) < len(in.table) {
		return nil
	}
	for _, most := range []float64{correction.Believed, 1} {
		table := objective.Plan{Most: most}.Bounded(slices.Clone(in.table), in.promised)
		if c.rules.Limits(in.function.Function).Usable(table, in.function.Inference.SLO) > 0 {
			return table
		}
	}
	return nil
}

// makeDo lets instances go on that are too slow by what was seen, as long as none of the
// function's is not. There may be no room for one that is faster, or never be: two
// functions on one node may each wait for what the other has. Without executions nobody
// would see that the trouble has passed, and no request would be answered. The lock is
// held.
func (c *Controller) makeDo(fn *function) {
	makesDo := !slices.ContainsFunc(fn.sorted(), func(in *instance) bool { return in.serves() && !in.useless })
	if makesDo == fn.makesDo {
		return
	}
	fn.makesDo = makesDo
	for _, in := range fn.sorted() {
		if in.serves() && in.useless && in.makeshift != nil {
			in.up(c.rules.Queue(fn.Function))
		}
	}
}
