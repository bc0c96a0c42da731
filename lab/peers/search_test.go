package peers

import (
	"math/rand/v2"
	"testing"
	"time"
)

// trial is the time of one rate.
const trial = 2 * time.Second

// find runs a search against a system that meets all rates up to capacity.
func find(s *Search, capacity float64) (rate float64, trials int) {
	for {
		rate, done := s.Next()
		if done {
			return s.Low, trials
		}
		s.Saw(rate, rate <= capacity, trial)
		trials++
	}
}

func TestSearchFinds(t *testing.T) {
	for _, capacity := range []float64{5, 10, 99, 100, 101, 299, 300, 4000} {
		s := &Search{Start: 100, Budget: time.Hour}
		got, trials := find(s, capacity)
		if got > capacity || got < capacity/resolution {
			t.Errorf("%v is found where %v is met", got, capacity)
		}
		if trials > maxTrials {
			t.Errorf("%d trials for %v", trials, capacity)
		}
	}
}

func TestSearchGivesUp(t *testing.T) {
	s := &Search{Start: 100, Budget: time.Hour}
	if got, trials := find(s, 0.01); got != 0 || trials > 6 {
		t.Errorf("%v is found after %d trials where nothing is met", got, trials)
	}
}

// A spent budget ends the search once a rate was met, and not before. It is spent from the first missed rate on: one that
// begins low is not coarser.
func TestSearchKeepsItsBudget(t *testing.T) {
	s := &Search{Start: 100, Budget: trial}
	if got, trials := find(s, 1e6); got != 100<<13 || trials != maxTrials {
		t.Errorf("%v after %d trials", got, trials)
	}
	s = &Search{Start: 100, Budget: 5 * trial}
	if got, trials := find(s, 100<<6+100); got < (100<<6+100)/1.1 || trials != 12 {
		t.Errorf("%v after %d trials", got, trials)
	}
	s = &Search{Start: 100, Budget: trial}
	if got, trials := find(s, 5); got == 0 || got > 5 || trials > minTrials {
		t.Errorf("%v after %d trials", got, trials)
	}
	s = &Search{Start: 100, Budget: trial}
	if got, trials := find(s, 99); got == 0 || got > 99 || trials != minTrials {
		t.Errorf("%v after %d trials", got, trials)
	}
}

// The search ends with a met rate even if the system is noisy.
func FuzzSearchEnds(f *testing.F) {
	f.Add(uint64(1), 0.5)
	f.Fuzz(func(t *testing.T, seed uint64, luck float64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &Search{Start: 100, Budget: 100 * trial}
		met := map[float64]bool{}
		for range 2000 {
			rate, done := s.Next()
			if done {
				if s.Low != 0 && !met[s.Low] {
					t.Errorf("%v was never met", s.Low)
				}
				return
			}
			if rate <= 0 {
				t.Fatalf("a rate of %v", rate)
			}
			good := rng.Float64() < luck
			if good {
				met[rate] = true
			}
			s.Saw(rate, good, trial)
		}
		t.Error("the search does not end")
	})
}
