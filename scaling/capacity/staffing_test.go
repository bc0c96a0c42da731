package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
)

// unluckyPart simulates requests that come at random to one queue with n instances. An
// instance takes up to batch requests for one unit of time, and load is the batches'
// work per unit. It returns the part of the requests that wait longer than patience.
func unluckyPart(r *rand.Rand, n int, load float64, batch int, patience float64) float64 {
	free := make([]float64, n)
	arrivals := make([]float64, 200_000)
	now := 0.0
	for i := range arrivals {
		now += r.ExpFloat64() / (load * float64(batch))
		arrivals[i] = now
	}
	late := 0
	for i := 0; i < len(arrivals); {
		first := 0
		for k := range free {
			if free[k] < free[first] {
				first = k
			}
		}
		start := max(free[first], arrivals[i])
		free[first] = start + 1
		for taken := 0; taken < batch && i < len(arrivals) && arrivals[i] <= start; taken++ {
			if start-arrivals[i] > patience {
				late++
			}
			i++
		}
	}
	return float64(late) / float64(len(arrivals))
}

// The formula's number of instances is enough, and at most one or two too many.
func TestCrew(t *testing.T) {
	testCrew(t, 0.01, 0.02, 0.3, 1, 3, 10, 40, 100)
	testCrew(t, 0.1, 3)
	testCrew(t, 0.001, 3, 10)
	if got := crew(2, 1, 0.5, 0.01); math.Abs(got-4.41) > 0.01 {
		t.Errorf("the example: %v, want 4.41", got)
	}
	// 1,000/s are 1.25 times what an instance carries that takes 12 in 15 ms. Others need only
	// carry the quarter, and a little more.
	if got := crew(1.25, 12, 17, 0.01); math.Abs(got-1.2613) > 1e-4 {
		t.Errorf("the rest of a large instance: %v, want 1.2613", got)
	}
}

func testCrew(t *testing.T, late float64, loads ...float64) {
	t.Helper()
	for _, batch := range []int{1, 4} {
		for _, load := range loads {
			for _, patience := range []float64{0.1, 0.3, 1} {
				if batch > 1 && load > 10 {
					continue // There it is for the policy to fill batches.
				}
				r := rand.New(rand.NewPCG(1, uint64(1000*load)))
				n := int(math.Ceil(crew(load, float64(batch), patience, late) - 1e-9))
				if got := unluckyPart(r, n, load, batch, patience); got > 2*late {
					t.Errorf("%v late, load %v in batches of %d, patience %v: %v wait too long at %d instances", late, load, batch, patience, got, n)
				}
				least := n
				for least > 1 && float64(least-1) > load && unluckyPart(r, least-1, load, batch, patience) <= late {
					least--
				}
				if float64(n) > 1.35*float64(least)+2 {
					t.Errorf("%v late, load %v in batches of %d, patience %v: %d instances, %d would do", late, load, batch, patience, n, least)
				}
			}
		}
	}
}
