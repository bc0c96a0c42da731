package capacity

import (
	"math"
	"time"
)

// Server is a number of equal instances in a pool of unequal ones.
type Server struct {
	Count int
	// Exec is how long a batch takes, and Rate the highest rate of one instance in requests
	// per second. Rate·Exec is its batch size.
	Exec time.Duration
	Rate float64
}

// batch is the number of requests that an instance takes at once.
func (s *Server) batch() float64 { return max(1, math.Round(s.Rate*s.Exec.Seconds())) }

// Unlucky estimates the part of requests that miss an objective because others came at the same
// time, where a load of rps comes at random to one queue in front of unequal instances. It is
// what [crew] solves for equal ones: the probability that all instances are busy (Erlang's C,
// as if each were as slow as the slowest), times that of waiting for longer than the slowest
// leaves. Any instance may be the next free one, so a request must be in time on each. As with
// crew, it is for the policy to fill batches: large pools that start them at once answer more
// requests late.
//
// For example 1,000 requests/s come to instances with 1,010/s: two of 100/s in 20 ms, one of
// 800/s in 15 ms, and two of 5/s in 200 ms. An objective of 300 ms leaves 100 ms, and
// exp(−2·10/s·100 ms) = 0.135 wait longer. With a third one of 100/s in place of the two slow
// ones, 280 ms are left, and 100/s free: 10⁻²⁴.
func Unlucky(pool []Server, rps float64, slo time.Duration) float64 {
	n, total, slowest, left, phases := 0.0, 0.0, 0.0, math.Inf(1), 0.0
	for i := range pool {
		s := &pool[i]
		if s.Count == 0 {
			continue
		}
		exec := s.Exec.Seconds()
		if s.batch() > 1 {
			phases = 1
		}
		n, total = n+float64(s.Count), total+float64(s.Count)*s.Rate
		slowest, left = max(slowest, exec, s.batch()/s.Rate), min(left, slo.Seconds()-exec)
		if s.Exec > slo {
			return 1
		}
	}
	if total <= rps {
		return 1
	}
	left = max(left, 0)
	for i := range pool {
		// Without batches phases is 0.
		phases *= math.Pow(max(0, 1-left/pool[i].Exec.Seconds()), float64(pool[i].Count))
	}
	return erlang(n, rps*slowest) * min(1, phases+math.Exp(-2*(total-rps)*left))
}

// erlang is Erlang's C: the probability that n servers are all busy if load comes at random.
func erlang(n, load float64) float64 {
	if load >= n {
		return 1
	}
	if load > manyInstances {
		return halfinWhitt((n - load) / math.Sqrt(load))
	}
	blocked := 1.0 // Erlang B, by its recursion.
	for i := 1.0; i <= n && blocked > 1e-12; i++ {
		blocked = load * blocked / (i + load*blocked)
	}
	return blocked / (1 - load/n*(1-blocked))
}

// halfinWhitt is the limit of Erlang's C for a large load, and load + β·√load servers.
func halfinWhitt(beta float64) float64 {
	normal := math.Exp(-beta*beta/2) / math.Sqrt(2*math.Pi)
	return 1 / (1 + beta*(1+math.Erf(beta/math.Sqrt2))/2/normal)
}
