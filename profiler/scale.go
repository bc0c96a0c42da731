package profiler

import (
	"math"
	"slices"
)

const (
	// scaleStep is the ratio of two neighbouring factors of [Profile.Scaled]: a yardstick that is
	// read again differs by some percent, and corrections of a profile hold for its exact times.
	scaleStep = 1.05
	// maxScale bounds the factor. No two machines that serve models differ by more.
	maxScale = 8
)

// Paces compares the yardsticks of two machines, in µs: the factor by which to is slower than
// from, rounded to a power of 1.05. It is 1 if one of them is unknown.
func Paces(from, to float64) float64 {
	if !(from > 0 && to > 0) {
		return 1
	}
	ratio := max(1.0/maxScale, min(maxScale, to/from))
	return math.Pow(scaleStep, math.Round(math.Log(ratio)/math.Log(scaleStep)))
}

// Scaled returns the profile for a machine whose cores are slower by a factor: the times on
// cores are multiplied by it, those on a GPU are not. margin is added to the margin of each time
// on cores, for the error of the factor: 0.1 for 10 %. It returns p itself if nothing changes.
func (p *Profile) Scaled(by, margin float64) *Profile {
	if by == 1 && margin == 0 {
		return p
	}
	out := *p
	out.Yardstick *= by
	out.Measurements = slices.Clone(p.Measurements)
	for i := range out.Measurements {
		m := &out.Measurements[i]
		if m.GPU > 0 {
			continue
		}
		m.Median, m.P95, m.CPU = m.Median*by, m.P95*by, m.CPU*by
		if margin > 0 {
			own := m.Margin
			if own <= 0 {
				own = Margin
			}
			m.Margin = own + margin
		}
	}
	return &out
}
