package correction

import "math"

// matters is the smallest relative difference of two times that a restart would notice: the configs
// that meet an objective rarely differ for less.
const matters = 0.05

// Outline returns what [State.Differs] compares: s with one weight for each class, the sum of all.
func (s State) Outline() State {
	classes := make([]Class, len(s.Classes))
	for i, c := range s.Classes {
		sum := c.weight()
		c.Weights = []float64{sum}
		classes[i] = c
	}
	s.Classes = classes
	return s
}

func (c *Class) weight() (sum float64) {
	for _, w := range c.Weights {
		sum += w
	}
	return sum
}

// Differs reports whether a restart with before in place of s would predict other times, or believe
// them for another amount of evidence: a factor or the time outside the engine is 5 % away, a class
// is new or gone, or its weight has doubled or halved. before may be an outline.
func (s State) Differs(before State) bool {
	if s.Profile != before.Profile || s.Elements != before.Elements || len(s.Classes) != len(before.Classes) ||
		apart(s.Beside.Batch, before.Beside.Batch) || apart(s.Beside.Request, before.Beside.Request) {
		return true
	}
	for i := range s.Classes {
		now, was := &s.Classes[i], &before.Classes[i]
		if now.on() != was.on() || now.Largest != was.Largest || apart(now.stated(), was.stated()) {
			return true
		}
		if more, less := max(now.weight(), was.weight()), min(now.weight(), was.weight()); more >= 2*less && more > 0 {
			return true
		}
	}
	return false
}

// stated is the factor by which the class multiplies the prediction.
func (c *Class) stated() float64 {
	if c.Factor == 0 {
		return 1
	}
	return c.Factor
}

// apart reports whether two times or factors differ by what matters.
func apart(a, b float64) bool { return math.Abs(a-b) > matters*max(math.Abs(a), math.Abs(b)) }
