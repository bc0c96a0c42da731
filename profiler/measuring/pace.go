package measuring

import "github.com/faas-infer/faas-infer/profiler"

// summarise converts samples at different paces to the quiet machine's pace: a time of
// 1.4 ms at a pace of 1.4 counts as 1 ms. If there are enough samples from the quiet
// machine, the others only count for Median and P95.
func summarise(all []taken, enough int) Sample {
	var r Sample
	var walls []float64
	var calm []taken
	runs := 0
	for _, t := range all {
		walls = append(walls, t.wall...)
		r.Pace += t.pace / float64(len(all))
		if t.calm() {
			calm = append(calm, t)
			runs += len(t.wall)
		}
	}
	if r.Noisy = runs < enough; !r.Noisy {
		all = calm
	}
	at := atPace(all, func(t taken) []float64 { return t.wall })
	r.Typical = profiler.Quantile(at, representative)
	r.Spread = (profiler.Quantile(at, 0.75) - profiler.Quantile(at, 0.25)) / r.Typical
	r.Runs, r.Median, r.P95 = len(walls), profiler.Quantile(walls, 0.5), max(profiler.Quantile(walls, 0.95), r.Typical)
	r.CPU = profiler.Quantile(atPace(all, func(t taken) []float64 { return t.cpu }), representative)
	return r
}

// atPace returns all samples, converted to the quiet machine's pace.
func atPace(all []taken, of func(taken) []float64) []float64 {
	var at []float64
	for _, t := range all {
		for _, x := range of(t) {
			at = append(at, x/t.pace)
		}
	}
	return at
}
