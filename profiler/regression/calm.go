package regression

import "slices"

// Disturbed is a measurement that contradicts another one of the same operator, because
// another program ran meanwhile. A disturbance makes a time longer and never shorter, so
// the other measurement counts.
type Disturbed struct {
	Operator, Family  string
	Batch, Millicores int
	Cold              bool
	// Measured is the time in µs, Plausible the maximum that the other measurement
	// allows.
	Measured, Plausible float64
}

// Disturbed lists the measurements that were disturbed by more than tolerance, 0.05 for
// 5 %, sorted by operator. They should be measured again.
func (m *Model) Disturbed(tolerance float64) []Disturbed {
	var all []Disturbed
	for _, d := range m.disturbed {
		if d.Measured > d.Plausible*(1+tolerance) {
			all = append(all, d)
		}
	}
	return all
}

// calm lowers each time that exceeds that of a larger batch, or that of the same operator
// with its weights in memory. It returns the lowered measurements.
func (s *subject) calm(settings []setting) []Disturbed {
	var all []Disturbed
	// Cold comes first, since a cold time bounds the warm one.
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
