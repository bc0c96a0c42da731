package measuring

// parts are the shares of memory that are tried when the pace is allowed for.
const parts = 5

// evident is by how much less samples must lie apart for a share of memory to be
// taken for the cause.
const evident = 0.9

// summarise brings samples that were taken at different paces to the quiet
// machine's. An operator is slowed down by the compute pace where it computes and
// by the memory pace where it waits for data:
//
//	t = T · ((1−μ)·compute + μ·memory)
//
// Which part μ is, nobody says; it is the one that leaves the samples closest
// together. For example a sum over 4 MB takes 300 µs at paces 1 and 1, 390 µs at
// 1 and 1.3, 300 µs at 1.4 and 1: only μ = 1 makes all three 300 µs. Where the
// paces do not tell, they are near each other or near 1, and μ matters little.
//
// If there are enough samples from the quiet machine, the others count for P95
// only.
func summarise(all []taken, enough int) Sample {
	var r Sample
	var walls []float64
	for _, t := range all {
		walls = append(walls, t.wall...)
		r.Pace.Compute += t.pace.Compute / float64(len(all))
		r.Pace.Memory += t.pace.Memory / float64(len(all))
	}
	var calm []taken
	runs := 0
	for _, t := range all {
		if t.calm() {
			calm = append(calm, t)
			runs += len(t.wall)
		}
	}
	if r.Noisy = runs < enough; !r.Noisy {
		all = calm
	}
	best := -1.0
	for _, memory := range order() {
		at := atPace(all, memory, func(t taken) []float64 { return t.wall })
		typical := quantile(at, representative)
		spread := (quantile(at, 0.75) - quantile(at, 0.25)) / typical
		if best < 0 || spread < best*evident {
			best, r.Memory, r.Typical, r.Spread = spread, memory, typical, spread
		}
	}
	r.Runs, r.Median, r.P95 = len(walls), quantile(walls, 0.5), max(quantile(walls, 0.95), r.Typical)
	r.CPU = quantile(atPace(all, r.Memory, func(t taken) []float64 { return t.cpu }), representative)
	return r
}

// order lists the shares of memory, the middle one first: it is kept unless
// another is clearly better.
func order() []float64 {
	shares := []float64{0.5}
	for i := range parts {
		if s := float64(i) / (parts - 1); s != 0.5 {
			shares = append(shares, s)
		}
	}
	return shares
}

// atPace are all samples at the quiet machine's pace.
func atPace(all []taken, memory float64, of func(taken) []float64) []float64 {
	var at []float64
	for _, t := range all {
		slow := (1-memory)*t.pace.Compute + memory*t.pace.Memory
		for _, x := range of(t) {
			at = append(at, x/slow)
		}
	}
	return at
}
