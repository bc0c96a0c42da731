package regression

import "slices"

// Disturbed is a measurement that contradicts another one of the same operator:
// something else ran meanwhile. A disturbance makes a time longer and never
// shorter, so the other one is taken at its word.
type Disturbed struct {
	Operator, Family  string
	Batch, Millicores int
	Cold              bool
	// Measured is the time in µs, Plausible the most that the other allows.
	Measured, Plausible float64
}

// Disturbed lists the measurements that were disturbed by more than tolerance,
// 0.05 for 5 %, by operator: they are worth being measured again.
func (m *Model) Disturbed(tolerance float64) []Disturbed {
	var all []Disturbed
	for _, d := range m.disturbed {
		if d.Measured > d.Plausible*(1+tolerance) {
			all = append(all, d)
		}
	}
	return all
}

// calm lowers the times that are above those of the same operator with its
// weights in memory, or of a larger batch, and returns what it lowered.
func (s *subject) calm(settings []setting) []Disturbed {
	var all []Disturbed
	// From cold to warm, since a cold time bounds the warm one.
	for i := len(settings) - 1; i >= 0; i-- {
		c := s.measured[i]
		cold := slices.Index(settings, setting{settings[i].millicores, true})
		for k := len(c) - 1; k >= 0; k-- {
			most := c[k].estimate.Median
			if k+1 < len(c) {
				most = min(most, c[k+1].estimate.Median)
			}
			if cold >= 0 && cold != i {
				if at, found := s.measured[cold].find(c[k].batch); found {
					most = min(most, s.measured[cold][at].estimate.Median)
				}
			}
			if most < c[k].estimate.Median {
				all = append(all, Disturbed{s.key, s.family, c[k].batch, settings[i].millicores, settings[i].cold, c[k].estimate.Median, most})
				c[k].estimate = scaled(c[k].estimate, most)
			}
		}
	}
	return all
}
