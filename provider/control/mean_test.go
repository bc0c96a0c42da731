package control

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// used returns the candidates of shares that instances have and that have a known mean.
// The mean of a share that was given up fades from one look to the next, also over a
// restart.
func (r *rig) used(candidates []capacity.Candidate) []capacity.Candidate {
	living := r.backend.living()
	return slices.DeleteFunc(slices.Clone(candidates), func(x capacity.Candidate) bool {
		return x.Mean == 0 || !slices.ContainsFunc(living, func(in cluster.Instance) bool { return in.Config.CPU == x.Config.CPU })
	})
}

// same returns the candidates whose configs are also in others.
func same(candidates, others []capacity.Candidate) []capacity.Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(x capacity.Candidate) bool {
		return !slices.ContainsFunc(others, func(o capacity.Candidate) bool { return o.Config == x.Config })
	})
}

// The engine gets both the time that an execution may take and the mean, and plans an
// instance's rate by the mean.
func TestMeansAreLearnt(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(always(0.8))
		r.measured("f", "m", within(100*time.Millisecond))
		for _, c := range r.known("f").candidates {
			if c.Mean != 0 {
				t.Errorf("nothing was executed, and %v takes %v on average", c.Config, c.Mean)
			}
		}
		r.load("f", 10*time.Millisecond, 20*time.Second)
		used := r.backend.living()[0].Config.CPU
		r.mu.Lock()
		defer r.mu.Unlock()
		fn := r.functions[full("f")]
		for _, c := range fn.artefacts[0].candidates {
			promised, _ := fn.artefacts[0].profile.ExecTime(c.Config.Batch, capacity.ShareOf(c.Config))
			switch {
			case c.Config.CPU != used:
			case c.Mean == 0, c.Mean > c.Exec:
				t.Errorf("%v takes %v on average and may take %v", c.Config, c.Mean, c.Exec)
			case 2*c.Mean < promised, c.Mean >= promised:
				t.Errorf("%v takes %v on average, of %v that were promised", c.Config, c.Mean, promised)
			}
		}
		if _, ok := fn.artefacts[0].lead.means[profiler.Share{CPU: used}]; !ok || len(fn.artefacts[0].lead.means) > 4 {
			t.Errorf("means of %d shares are kept", len(fn.artefacts[0].lead.means))
		}
	})
}
