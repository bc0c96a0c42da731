package scaling

import (
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
)

// overlap lets an exchanged instance serve until the one in its place is ready, if its function has no other that
// serves: its requests would wait for a start otherwise, and those of a model in Python for seconds. The new one
// begins with the CPU that the other leaves it, so other starts need not wait for that one. Both need memory at the
// same time.
//
// For example a node has 1750m, and an instance with 1000m is exchanged for one with 1750m, because two threads meet
// the objective and one does not. The new one begins with 750m. An instance with 1750m cannot be exchanged like
// that for one with 1000m: nothing is left to begin with.
func overlap(p *pass) {
	for k := range p.plan.Start {
		s := &p.plan.Start[k]
		if s.Why != Rearranged || s.Config.GPU > 0 || s.Config.Members() > 1 {
			continue
		}
		at, _ := slices.BinarySearchFunc(p.views, s.Function, func(v *view, name string) int { return strings.Compare(v.Name, name) })
		v := p.views[at]
		place, ok := p.space().Find(s.Node)
		other := func(o Start) bool { return o.Function == s.Function && o.Succeeds != "" }
		if !ok || slices.ContainsFunc(v.live, func(in Running) bool { return in.State == cluster.Ready }) || slices.ContainsFunc(p.plan.Start, other) {
			continue
		}
		free, best := p.space().Places[place].Free, (*Running)(nil)
		for i := range v.Instances {
			in := &v.Instances[i]
			cpu := min(s.Config.CPU, s.Config.CPU-in.Config.CPU+free.CPU)
			if cpu > 0 && (best == nil || in.Config.CPU > best.Config.CPU) && in.State == cluster.Ready && !in.Parked && in.Config.GPU == 0 &&
				in.memoryBeside(s) <= free.Memory && slices.Contains(s.After, in.ID) {
				best, s.Succeeds, s.Begins = in, in.ID, cpu
			}
		}
		if best != nil {
			p.space().Hold(place, cluster.Resources{CPU: s.Begins + best.Config.CPU - s.Config.CPU, Memory: best.memoryBeside(s)}, "")
		}
	}
}

// memoryBeside is what the instance takes beside the one that starts in its room. Both map the same weights if they
// have the same artefact.
func (in *Running) memoryBeside(s *Start) int64 {
	if in.Artefact == s.Artefact && in.Config.Mapped == s.Config.Mapped {
		return in.Config.Own()
	}
	return in.Config.Memory
}
