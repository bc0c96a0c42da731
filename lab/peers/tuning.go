package peers

import "time"

// Tuning searches the settings of Triton's dynamic batching with which it answers most. It changes
// one of them at a time, keeps what is better, and ends once a whole round found nothing better.
// It is pure: Next returns the setting to measure, Saw takes the result. Begin with [NewTuning].
type Tuning struct {
	// Best is the best setting so far, Rate its rate in requests/s.
	Best Setting
	Rate float64
	// Max is the number of settings that may be measured.
	Max int

	slo time.Duration
	// axis is the setting that changes now, queue has its values that are left. idle counts the
	// axes in a row that found nothing better.
	axis, idle int
	queue      []Setting
	tried      map[string]bool
}

// The values that are tried. Delays are divisors of the objective, 0 for no delay.
var (
	triedInstances = []int{1, 2, 4}
	triedBatches   = []int{8, 16, 32, 64}
	triedDelays    = []time.Duration{0, shortDelay, longDelay, 4}
	// triedPreferred are divisors of the largest batch: none, half of it, and itself.
	triedPreferred = []int{0, 2, 1}
)

// axes make the variants of a setting, the one with most effect first.
var axes = []func(x Setting, slo time.Duration) []Setting{
	func(x Setting, _ time.Duration) (all []Setting) {
		for _, n := range triedInstances {
			x.Workers = n
			all = append(all, x)
		}
		return all
	},
	func(x Setting, _ time.Duration) (all []Setting) {
		part := 0
		if x.Preferred > 0 {
			part = x.MaxBatch / x.Preferred
		}
		for _, n := range triedBatches {
			if x.MaxBatch = n; part > 0 {
				x.Preferred = n / part
			}
			all = append(all, x)
		}
		return all
	},
	func(x Setting, slo time.Duration) (all []Setting) {
		for _, part := range triedDelays {
			if x.Delay = 0; part > 0 {
				x.Delay = slo / part
			}
			all = append(all, x)
		}
		return all
	},
	func(x Setting, _ time.Duration) (all []Setting) {
		for _, part := range triedPreferred {
			if x.Preferred = 0; part > 0 {
				x.Preferred = x.MaxBatch / part
			}
			all = append(all, x)
		}
		return all
	},
}

// NewTuning begins with the values of Triton's documents, for an objective. It measures at most
// maxSettings settings.
func NewTuning(slo time.Duration, maxSettings int) *Tuning {
	t := &Tuning{slo: slo, Max: maxSettings, axis: -1, tried: map[string]bool{}}
	t.Best = setting(largeBatch, slo/shortDelay, 2).named()
	t.queue = []Setting{t.Best}
	return t
}

// Next returns the setting to measure. done is true when the search is over and Best is its result.
func (t *Tuning) Next() (x Setting, done bool) {
	for len(t.tried) < t.Max {
		for len(t.queue) > 0 {
			x, t.queue = t.queue[0], t.queue[1:]
			if !t.tried[x.Name] {
				return x, false
			}
		}
		if t.idle++; t.idle > len(axes) {
			break
		}
		t.axis = (t.axis + 1) % len(axes)
		for _, x := range axes[t.axis](t.Best, t.slo) {
			t.queue = append(t.queue, x.named())
		}
	}
	return t.Best, true
}

// Saw takes the rate of a setting in requests/s, 0 if it is no better than the best or failed.
func (t *Tuning) Saw(x Setting, rate float64) {
	t.tried[x.Name] = true
	if rate > t.Rate {
		t.Best, t.Rate, t.idle = x, rate, 0
	}
}
