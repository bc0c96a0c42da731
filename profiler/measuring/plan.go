package measuring

import (
	"slices"

	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// coldFrom is the minimum size in bytes of weights for which it matters whether they
// come from the last-level cache or from memory.
const coldFrom = 256 << 10

// Tasks lists the measurements for a set of graphs: each distinct operator once per
// number of threads. An operator with weights is measured a second time, cold, if it is
// in a model that is larger than a core's own cache.
func Tasks(graphs []*operator.Graph, batches, threads []int, caches Caches) []Task {
	var tasks []Task
	seen := map[string]int{} // 1: warm, 2: cold as well
	for _, g := range graphs {
		large := g.WeightBytes()+g.ActivationBytes(slices.Max(batches)) > ownSweep*caches.Own
		for _, op := range g.Operators {
			if op.Unknown {
				continue
			}
			key := op.Key()
			if seen[key] == 0 {
				seen[key] = 1
				for _, n := range threads {
					tasks = append(tasks, Task{Operator: op, Threads: n, Batches: batches})
				}
			}
			if large && seen[key] == 1 && op.Features(1).WeightBytes >= coldFrom {
				seen[key] = 2
				for _, n := range threads {
					tasks = append(tasks, Task{Operator: op, Threads: n, Batches: batches, Cold: true})
				}
			}
		}
	}
	return tasks
}

// onLine reports whether the middle one of three rows is on the line through the others.
func onLine(low, middle, high database.Row) bool {
	line := low.Median + (high.Median-low.Median)*float64(middle.Batch-low.Batch)/float64(high.Batch-low.Batch)
	return middle.Median >= line*(1-straight) && middle.Median <= line*(1+straight)
}

// Alone is the number of bytes read between two executions of an operator while its warm
// time is measured: its copies' weights, or the sweep of the core's own cache.
func Alone(op *operator.Operator, batch int, caches Caches) int64 {
	w := op.Features(batch).WeightBytes
	return max(w+ownSweep*caches.Own, min(maxCopied, w*int64(copiesUpTo[0].copies))/2)
}

// Working is the number of bytes that a graph's run reads: its weights, and its
// activations, whose memory is reused.
func Working(g *operator.Graph, batch int) int64 { return g.WeightBytes() + g.ActivationBytes(batch) }
