package peers

import (
	"math"
	"time"
)

// resolution is how close the rate that is met and the one that is not are at the end of
// a search, as a ratio.
const resolution = 1.04

// growth is by how much a rate is raised, or lowered, until one is met and one is not.
const growth = 3

// lowest is the part of the first rate below which none is tried.
const lowest = 1e-3

// Search finds the highest rate that is met, of a system of which nothing is known. It is
// pure: Next says which rate to offer, Saw what came of it. All systems are searched by
// the same one.
type Search struct {
	// Start is the first rate in requests/s.
	Start float64
	// Low is the highest rate that was met, High the lowest above it that was not;
	// 0 if there is none yet.
	Low, High float64
	// Budget is how long the search may offer load; Spent is added up by Saw.
	Budget, Spent time.Duration
}

// Next returns the rate in requests/s that is to be offered; done is true when the search
// is over and Low is its result. A search whose budget is spent ends once a rate was met.
func (s *Search) Next() (rate float64, done bool) {
	switch {
	case s.Low == 0 && s.High == 0:
		return s.Start, false
	case s.High == 0:
		return s.Low * growth, s.Spent >= s.Budget
	case s.Low == 0:
		rate = s.High / growth
		return rate, rate < s.Start*lowest
	}
	return math.Sqrt(s.Low * s.High), s.High <= s.Low*resolution || s.Spent >= s.Budget
}

// Saw takes what came of a rate that was offered for some time.
func (s *Search) Saw(rate float64, met bool, took time.Duration) {
	s.Spent += took
	if met {
		s.Low = max(s.Low, rate)
		if s.High != 0 && s.High <= s.Low { // Two trials of nearly one rate may disagree.
			s.High = 0
		}
		return
	}
	if rate > s.Low && (s.High == 0 || rate < s.High) {
		s.High = rate
	}
}
