package arrivals

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// State is one of a process's states.
type State struct {
	// Rate in requests/s while in the state.
	Rate float64
	// Mean is the mean length of a stay. Stays are exponential.
	Mean time.Duration
}

// MMPP is a Markov-modulated Poisson process. In each state, requests arrive like Poisson
// at the state's rate. After a random time the process moves to the next state in order,
// and from the last to the first. A quiet and a busy state make bursts. The probability of
// a state at the start is its share of the time in the long run.
func MMPP(states []State, seed uint64) (Process, error) {
	if len(states) < 2 {
		return nil, errors.New("a Markov-modulated process needs at least two states")
	}
	for i, s := range states {
		if err := checkRate(s.Rate); err != nil {
			return nil, fmt.Errorf("state %d: %w", i+1, err)
		}
		if s.Mean <= 0 {
			return nil, fmt.Errorf("state %d lasts %v: it must last longer than 0", i+1, s.Mean)
		}
	}
	return newModulated(func() course { return newChain(states, seed) }, Exponential, seed), nil
}

// chain makes the stays of an MMPP, one segment each.
type chain struct {
	states []State
	now    int
	rng    *rand.Rand
}

func newChain(states []State, seed uint64) *chain {
	c := &chain{states: states, rng: generator(seed, streamStates)}
	total := 0.0
	for _, s := range states {
		total += s.Mean.Seconds()
	}
	// Stays are exponential, so the rest of the first has the distribution of a whole one.
	for x := c.rng.Float64() * total; c.now < len(states)-1; c.now++ {
		if x -= states[c.now].Mean.Seconds(); x < 0 {
			break
		}
	}
	return c
}

func (c *chain) next() (Segment, bool) {
	s := c.states[c.now]
	c.now = (c.now + 1) % len(c.states)
	stay := c.rng.ExpFloat64() * float64(s.Mean)
	return Segment{For: max(1, time.Duration(min(stay, float64(Forever/2)))), From: s.Rate, To: s.Rate}, true
}
