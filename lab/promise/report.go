package promise

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/command/report"
)

// tooSmall is the scenario whose machine cannot carry the load, for which no totals count.
const tooSmall = "too_small"

// tell writes a line for each way to the log.
func (b *Bench) tell(r *result, chosen []way) {
	if b.Log == nil || r.err != nil {
		return
	}
	fmt.Fprintf(b.Log, "%s %g %%: clairvoyant kept %.2f with %.2f cores\n",
		r.scenario, r.percentile, r.known.kept(), r.known.cores)
	for i, o := range r.ways {
		first, longest, refused := o.worst()
		fmt.Fprintf(b.Log, "  %-12s kept %.3f, cores %.2f × %.2f, first violation %.2f s, longest %.2f s, refused %.2f %%\n",
			chosen[i].name, o.kept(), r.known.cores, o.cores/r.known.cores, first, longest, refused)
	}
}

// worst returns the longest first and the longest violation of a function in s, and the largest part that was
// refused in %.
func (o *outcome) worst() (first, longest, refused float64) {
	for i := range o.functions {
		j := &o.functions[i]
		first, longest = max(first, j.first.Seconds()), max(longest, j.longest.Seconds())
		refused = max(refused, 100*float64(j.refused)/float64(max(1, j.all)))
	}
	return first, longest, refused
}

// hasty is the largest part in % of a function's requests that were refused although an idle instance could have answered
// them in time.
func (o *outcome) hasty() (largest float64) {
	for i := range o.functions {
		j := &o.functions[i]
		largest = max(largest, 100*float64(j.hasty)/float64(max(1, j.all)))
	}
	return largest
}

// add adds the figures of a scenario.
func (r *result) add(to *report.Report, chosen []way) {
	of := fmt.Sprintf(".p%g.%s", r.percentile, r.scenario)
	to.Add("cores.clairvoyant"+of, r.known.cores, "cores", fmt.Sprintf("keep %.2f %%", r.known.kept()))
	for i, o := range r.ways {
		requests := 0
		for k := range o.functions {
			requests += o.functions[k].all
		}
		first, _, refused := o.worst()
		name := chosen[i].name + of
		to.Add("kept_pct."+name, o.kept(), "%", fmt.Sprintf("of %d requests; %.2f %% were refused", requests, refused))
		to.Add("cores_over_clairvoyant."+name, o.cores/r.known.cores, "ratio", fmt.Sprintf("%.2f cores", o.cores))
		to.Add("first_violation_s."+name, first, "s", "")
		to.Add("hasty_pct."+name, o.hasty(), "%", "were refused, and an idle instance could have answered them in time")
	}
}

// totals adds what each way reaches in all scenarios.
func totals(to *report.Report, all []result, chosen []way) {
	for i, w := range chosen {
		var gap, shortfall, first, hasty float64
		var cores []float64
		gapAt, shortAt := "", ""
		short, promises := 0, 0
		for _, r := range all {
			if r.scenario == tooSmall {
				continue
			}
			o := r.ways[i]
			promises++
			at := fmt.Sprintf("p%g.%s", r.percentile, r.scenario)
			off := o.kept() - r.percentile
			if math.Abs(off) > gap {
				gap, gapAt = math.Abs(off), at
			}
			if -off > shortfall {
				shortfall, shortAt = -off, at
			}
			if -off > tolerated(r.percentile) {
				short++
			}
			f, _, _ := o.worst()
			first, hasty = max(first, f), max(hasty, o.hasty())
			if r.known.kept() >= r.percentile { // Otherwise nobody knows how many cores are needed.
				cores = append(cores, o.cores/r.known.cores)
			}
		}
		if promises == 0 {
			continue
		}
		to.Add("kept.worst_gap_points."+w.name, gap, "points", "in "+gapAt+"; to reach: at most 0.3")
		to.Add("kept.worst_shortfall_points."+w.name, shortfall, "points", "in "+shortAt)
		to.Add("kept.broken."+w.name, float64(short), "promises",
			fmt.Sprintf("of %d, by more than 0.3 points or half of what may miss", promises))
		if slices.Sort(cores); len(cores) > 0 {
			to.Add("cores_over_clairvoyant.median."+w.name, cores[len(cores)/2], "ratio", "to reach: at most 1.1")
			to.Add("cores_over_clairvoyant.worst."+w.name, cores[len(cores)-1], "ratio", "")
		}
		to.Add("first_violation_s.worst."+w.name, first, "s", "to reach: at most 1")
		to.Add("hasty_pct.worst."+w.name, hasty, "%", "to reach: at most 0.1")
	}
}

// tolerated is how many points fewer may be kept: 0.3, but at most half of what may miss.
func tolerated(percentile float64) float64 { return min(0.3, (100-percentile)/2) }
