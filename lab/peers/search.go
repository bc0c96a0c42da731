package peers

import (
	"math"
	"time"
)

// resolution ends a search: it is the ratio of the lowest missed to the highest met rate.
const resolution = 1.04

// growth is the factor by which the rate is raised or lowered until one is met and one is
// missed.
const growth = 2

// lowest is the lowest rate to try, as a part of the first one.
const lowest = 1.0 / 32

// minTrials is the number of trials that a search has whatever its budget is. maxTrials is the
// number after which it ends once it has met a rate.
const minTrials, maxTrials = 7, 14

// Search finds the highest rate that a system meets, without knowledge of the system. It is
// pure: Next returns the rate to offer, Saw takes the result. All systems have the same
// search.
type Search struct {
	// Start is the first rate in requests/s.
	Start float64
	// Low is the highest met rate, High the lowest missed rate above it; 0 if there is
	// none yet.
	Low, High float64
	// Budget is how long the search may offer load once it has missed a rate: a system that scales is slow with one
	// request after the other, begins low, and must not end with a coarser answer for that. Saw adds up Spent and
	// counts Trials.
	Budget, Spent time.Duration
	Trials        int
}

// Next returns the rate in requests/s to offer. done is true when the search is over and
// Low is its result. A search ends once it has met a rate and its budget is spent.
func (s *Search) Next() (rate float64, done bool) {
	switch {
	case s.Low == 0 && s.High == 0:
		return s.Start, false
	case s.High == 0:
		return s.Low * growth, s.spent()
	case s.Low == 0:
		rate = s.High / growth
		return rate, rate < s.Start*lowest
	}
	return math.Sqrt(s.Low * s.High), s.High <= s.Low*resolution || s.spent()
}

// spent reports whether the search has had its time or its trials.
func (s *Search) spent() bool {
	return s.Trials >= maxTrials || s.Trials >= minTrials && s.Spent >= s.Budget
}

// Saw takes the result of a rate that was offered for took.
func (s *Search) Saw(rate float64, met bool, took time.Duration) {
	if s.Trials++; s.High != 0 || !met {
		s.Spent += took
	}
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
