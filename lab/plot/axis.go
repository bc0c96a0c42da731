package plot

import (
	"math"
	"strconv"
)

// scale turns values into pixels along one axis.
type scale struct {
	log      bool
	min, max float64
	// from and to are the pixels of min and max.
	from, to float64
}

// newScale returns the scale of an axis whose data lie between low and high. A linear scale
// includes 0 if zero is set, and ends at ticks.
func newScale(a Axis, low, high float64, zero bool) scale {
	s := scale{log: a.Log, min: a.Min, max: a.Max}
	if a.Min != 0 || a.Max != 0 {
		return s
	}
	if a.Log {
		s.min, s.max = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
		if s.min == s.max {
			s.max *= 10
		}
		return s
	}
	if zero {
		low, high = min(low, 0), max(high, 0)
	}
	// In a range as small as rounding errors, the loop over ticks would not end.
	if high-low <= 1e-9*max(math.Abs(low), math.Abs(high)) {
		high = low + max(1, math.Abs(low))
	}
	d := step(low, high)
	s.min, s.max = d*math.Floor(low/d+1e-9), d*math.Ceil(high/d-1e-9)
	return s
}

// at returns the pixel of v, which may lie beyond the axis.
func (s scale) at(v float64) float64 {
	low, high := s.min, s.max
	if s.log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(v)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// clamp returns the pixel of v, limited to the axis.
func (s scale) clamp(v float64) float64 {
	return s.at(max(s.min, min(s.max, v)))
}

// ticks returns the labelled values of the axis.
func (s scale) ticks() []float64 {
	var out []float64
	if s.log {
		for v := math.Pow(10, math.Ceil(math.Log10(s.min)-1e-9)); v <= s.max*(1+1e-9); v *= 10 {
			out = append(out, v)
		}
		return out
	}
	d := step(s.min, s.max)
	for i := math.Ceil(s.min/d - 1e-9); i*d <= s.max+d*1e-9; i++ {
		out = append(out, i*d)
	}
	return out
}

// step returns the distance of ticks: 1, 2 or 5 times a power of ten, with about five ticks
// on the axis.
func step(low, high float64) float64 {
	rough := (high - low) / 5
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5} {
		if rough <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// label returns the text of a tick's or a bar's number: three digits, or thousands as k.
func label(v float64) string {
	if math.Abs(v) >= 10000 {
		return strconv.FormatFloat(v/1000, 'g', 3, 64) + "k"
	}
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
