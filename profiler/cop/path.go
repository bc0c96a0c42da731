package cop

import "github.com/faas-infer/faas-infer/profiler/operator"

// path finds the longest path through a graph. Its memory is reused for every config.
type path struct {
	// end is the time in µs at which each node ends; before is the node that it
	// waited for, or -1.
	end    []float64
	before []int
	calls  []int
}

func newPath(g *operator.Graph) *path {
	return &path{end: make([]float64, len(g.Nodes)), before: make([]int, len(g.Nodes)), calls: make([]int, len(g.Operators))}
}

// longest returns the number of times that each operator is on the path that takes
// longest. The slice is valid until the next call.
func (p *path) longest(g *operator.Graph, times []Estimate) []int {
	clear(p.calls)
	last := -1
	for i, n := range g.Nodes {
		start := 0.0
		p.before[i] = -1
		for _, in := range n.Inputs {
			if p.before[i] < 0 || p.end[in] > start {
				start, p.before[i] = p.end[in], in
			}
		}
		p.end[i] = start + times[n.Operator].Median
		if last < 0 || p.end[i] > p.end[last] {
			last = i
		}
	}
	for ; last >= 0; last = p.before[last] {
		p.calls[g.Nodes[last].Operator]++
	}
	return p.calls
}
