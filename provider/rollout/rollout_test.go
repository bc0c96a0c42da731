package rollout

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1_000_000, 0)

// TestIntervalCovers draws long sequences and counts those whose rate ever leaves the interval.
func TestIntervalCovers(t *testing.T) {
	for _, rate := range []float64{0.001, 0.02, 0.3, 0.9} {
		draw, out := rand.New(rand.NewPCG(1, uint64(rate*1000))), 0
		const runs, alpha = 1000, 0.05
		for range runs {
			var k uint64
			for n := uint64(1); n <= 1000; n++ {
				if draw.Float64() < rate {
					k++
				}
				if !sequence(k, n, alpha)(rate) {
					out++
					break
				}
			}
		}
		if got := float64(out) / runs; got > alpha+3*math.Sqrt(alpha*(1-alpha)/runs) {
			t.Errorf("rate %v left its interval in %.3f of the runs, at most %v may", rate, got, alpha)
		}
	}
}

// traffic is a simulated load on both sides.
type traffic struct {
	rate                  int // requests/s
	stable, candidate     float64
	stallEvery, stallSpan time.Duration // both sides miss everything meanwhile
	different             float64
	mirror                bool
}

// simulate runs one rollout for at most a time and returns how it ended and when.
func simulate(draw *rand.Rand, p Plan, of traffic, limit time.Duration) (Kind, time.Duration, int) {
	const tick = 250 * time.Millisecond
	s, seen, harmed := Begin(start), Seen{Ready: true}, 0
	offset := time.Duration(draw.Int64N(int64(time.Minute)))
	add := func(side *Side, rate float64, stalled bool) bool {
		side.Answered++
		if stalled || draw.Float64() < rate {
			side.Missed++
			return true
		}
		return false
	}
	for at := time.Duration(0); at < limit; at += tick {
		stalled := of.stallEvery > 0 && (at+offset)%of.stallEvery < of.stallSpan
		for i := range of.rate / 4 {
			if 100*draw.Float64() < float64(s.Share(p)) {
				if add(&seen.Candidate, of.candidate, stalled) {
					harmed++
				}
			} else {
				add(&seen.Stable, of.stable, stalled)
				if s.Phase == Proving && i == 0 { // A copy, at most one at a time.
					add(&seen.Candidate, of.candidate, stalled)
				}
			}
			if of.mirror && s.Phase != Starting && draw.IntN(10) == 0 {
				seen.Compared++
				if draw.Float64() < of.different {
					seen.Different++
				}
			}
		}
		var a Action
		if s, a = s.Decide(p, seen, start.Add(at)); a.Kind == Promote || a.Kind == RollBack {
			return a.Kind, at, harmed
		}
	}
	return Hold, limit, harmed
}

var usual = Plan{Steps: []int{5, 25, 50}, Margin: 0.02, MaxDifferent: 0.01, Patience: time.Minute}

// TestLuckDecidesNothing simulates thousands of rollouts: candidates as good as the present revision are not rolled
// back, worse ones are not promoted, both but for Alpha.
func TestLuckDecidesNothing(t *testing.T) {
	const runs = 1000
	allowed := Alpha + 3*math.Sqrt(Alpha*(1-Alpha)/runs)
	cases := []struct {
		name  string
		of    traffic
		wrong Kind
	}{
		{"equal and good", traffic{rate: 200, stable: 0.001, candidate: 0.001}, RollBack},
		{"equal and bad", traffic{rate: 200, stable: 0.1, candidate: 0.1}, RollBack},
		{"equal with stalls", traffic{rate: 200, stable: 0.001, candidate: 0.001, stallEvery: 20 * time.Second, stallSpan: 200 * time.Millisecond}, RollBack},
		{"worse by the margin", traffic{rate: 200, stable: 0.005, candidate: 0.026}, Promote},
		{"worse by twice the margin", traffic{rate: 200, stable: 0.005, candidate: 0.045}, Promote},
	}
	for _, c := range cases {
		draw, wrong, promoted := rand.New(rand.NewPCG(7, 11)), 0, 0
		for range runs {
			kind, _, _ := simulate(draw, usual, c.of, 100*time.Second)
			if kind == c.wrong {
				wrong++
			}
			if kind == Promote {
				promoted++
			}
		}
		t.Logf("%s: wrong %d of %d, promoted %d", c.name, wrong, runs, promoted)
		if float64(wrong)/runs > allowed {
			t.Errorf("%s: %d of %d rollouts ended wrong, at most %.1f %% may", c.name, wrong, runs, 100*allowed)
		}
		if c.name == "equal and good" && promoted < runs/2 {
			t.Errorf("%d of %d good candidates were promoted within 100 s", promoted, runs)
		}
	}
}

// TestFaultsAreFoundSoon: a candidate that misses everything goes within seconds and harms nobody.
func TestFaultsAreFoundSoon(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 5))
	for _, c := range []struct {
		name string
		of   traffic
	}{
		{"misses all", traffic{rate: 200, stable: 0.001, candidate: 1}},
		{"misses half", traffic{rate: 200, stable: 0.001, candidate: 0.5}},
		{"answers otherwise", traffic{rate: 200, stable: 0.001, candidate: 0.001, different: 1, mirror: true}},
	} {
		p := usual
		if c.of.mirror {
			p.Mirror = 10
		}
		for range 300 {
			kind, after, harmed := simulate(draw, p, c.of, time.Minute)
			if kind != RollBack || after > 10*time.Second || harmed > 0 {
				t.Fatalf("%s: ended as %v after %v with %d harmed requests", c.name, kind, after, harmed)
			}
		}
	}
}

func TestStarting(t *testing.T) {
	s := Begin(start)
	s, a := s.Decide(usual, Seen{Problem: "exit status 1"}, start.Add(time.Second))
	if a.Kind != Hold {
		t.Fatalf("got %+v", a)
	}
	s, a = s.Decide(usual, Seen{Problem: "exit status 1"}, start.Add(4*time.Second))
	if a.Kind != RollBack || !strings.Contains(a.Why, "exit status 1") {
		t.Fatalf("got %+v", a)
	}
	s = Begin(start)
	if _, a = s.Decide(usual, Seen{}, start.Add(time.Minute)); a.Kind != RollBack {
		t.Fatalf("got %+v", a)
	}
}

// TestLosesInstances: a candidate whose instances end goes, one that is only idle stays.
func TestLosesInstances(t *testing.T) {
	for problem, want := range map[string]Kind{"killed by signal 9": RollBack, "": Hold} {
		s, _ := Begin(start).Decide(usual, Seen{Ready: true}, start)
		a := Action{}
		for i := range 100 {
			if s, a = s.Decide(usual, Seen{Problem: problem}, start.Add(time.Duration(i)*100*time.Millisecond)); a.Kind == RollBack {
				break
			}
		}
		if a.Kind != want {
			t.Errorf("problem %q: %+v", problem, a)
		}
		s, _ = Begin(start).Decide(usual, Seen{Ready: true}, start)
		for i := range 10 { // Up and down.
			seen := Seen{Ready: i%2 == 0}
			if !seen.Ready {
				seen.Problem = problem
			}
			if s, a = s.Decide(usual, seen, start.Add(time.Duration(i)*100*time.Millisecond)); a.Kind == RollBack {
				break
			}
		}
		if a.Kind != want {
			t.Errorf("up and down with problem %q: %+v", problem, a)
		}
	}
}

// TestNoTraffic: without requests nothing is decided, however long it takes.
func TestNoTraffic(t *testing.T) {
	s, seen := Begin(start), Seen{Ready: true}
	for i := range 1000 {
		var a Action
		if s, a = s.Decide(usual, seen, start.Add(time.Duration(i)*time.Hour)); a.Kind == Promote || a.Kind == RollBack {
			t.Fatalf("got %+v", a)
		}
	}
	if s.Phase != Proving {
		t.Fatalf("the phase is %s", s.Phase)
	}
}

// TestHeaderOnly: a candidate without a share waits for the user.
func TestHeaderOnly(t *testing.T) {
	p := usual
	p.Steps = nil
	kind, _, _ := simulate(rand.New(rand.NewPCG(1, 1)), p, traffic{rate: 200}, time.Minute)
	if kind != Hold {
		t.Fatalf("it ended as %v", kind)
	}
}

// FuzzDecide: whatever the counts, a share is one of the plan's, and condemned candidates have evidence against them.
func FuzzDecide(f *testing.F) {
	f.Add(uint64(10), uint64(3), uint64(1), uint64(100), uint64(2), uint64(0), uint64(20), uint64(4))
	f.Fuzz(func(t *testing.T, n, missed, failed, stableN, stableMissed, stableFailed, compared, different uint64) {
		bound := func(k, n uint64) uint64 { return min(k, n) }
		n, stableN, compared = n%1e9, stableN%1e9, compared%1e9
		seen := Seen{Ready: true,
			Candidate: Side{n, bound(missed, n), bound(failed, bound(missed, n))},
			Stable:    Side{stableN, bound(stableMissed, stableN), bound(stableFailed, bound(stableMissed, stableN))},
			Compared:  compared, Different: bound(different, compared)}
		s := Begin(start)
		for i := range 8 {
			var a Action
			s, a = s.Decide(usual, seen, start.Add(time.Duration(i)*time.Second))
			if share := s.Share(usual); share != 0 && share != 5 && share != 25 && share != 50 {
				t.Fatalf("the share is %d", share)
			}
			if a.Kind == RollBack && seen.Candidate.Missed == 0 && seen.Different == 0 {
				t.Fatalf("rolled back without evidence: %+v", a)
			}
			if a.Why == "" {
				t.Fatal("no reason")
			}
		}
	})
}
