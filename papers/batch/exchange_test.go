package batch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// A choice at half the cost pays after a minute, one at two thirds after longer. One
// without cost pays after an exchange and the one back.
func TestRepays(t *testing.T) {
	for r, want := range map[float64]time.Duration{2: time.Minute, 1.5: 100 * time.Second, 1: 100 * time.Second, 3: 40 * time.Second, math.Inf(1): 20 * time.Second} {
		if got := payback(r).Round(ms); got != want {
			t.Errorf("%v times as dear: %v, want %v", r, got, want)
		}
	}
}

// lopsided is a model for which GPUs are worth their price only with many requests: a
// batch takes little longer than one request there.
type lopsided struct{}

func (lopsided) Configs() (all []cluster.Config) {
	for _, b := range []int{1, 2, 4, 8, 16, 32} {
		all = append(all, cluster.Config{Batch: b, Resources: cluster.Resources{CPU: 1000, GPU: 20}})
		if b <= 4 {
			all = append(all, cluster.Config{Batch: b, Resources: cluster.Resources{CPU: 2000}})
		}
	}
	return all
}

func (lopsided) Exec(c cluster.Config, b int) (time.Duration, bool) {
	if c.GPU > 0 {
		return 10*ms + time.Duration(b)*ms/4, b <= 32
	}
	return 10*ms + time.Duration(b)*15*ms, b <= 4
}

func (lopsided) Spread() float64 { return 0 }

// ample is more room than any choice needs.
func ample(r cluster.Resources) int {
	if r.GPU > 0 {
		return 20
	}
	return 64
}

// course calls a tuner each second with loads that last for a time each. It counts the
// exchanges of all instances after the first choice, and the searches.
func course(t *testing.T, room systems.Room, loads func(second int) float64, seconds int) (last cluster.Config, exchanged, searched int) {
	t.Helper()
	u := NewTuner(system(t), systems.Function{SLO: 200 * ms, Percentile: 99}, lopsided{})
	var before uint64
	at := time.Unix(1000, 0)
	for s := range seconds {
		at = at.Add(time.Second)
		u.Within(room)
		list, revision := u.list, u.revision
		if x := u.Begin(at, loads(s)); x != nil {
			searched++
			x.Run()
			list, revision = x.Take()
		}
		if before > 0 && revision != before {
			exchanged++
		}
		before, last = revision, list[0].Config
	}
	return last, exchanged, searched
}

func forLoad(t *testing.T, rate float64) capacity.Candidate {
	t.Helper()
	u := NewTuner(system(t), systems.Function{SLO: 200 * ms, Percentile: 99}, lopsided{})
	u.Within(ample)
	list, _ := u.Candidates(time.Unix(1000, 0), rate)
	return list[0]
}

// Bursts that come and go cause no exchange, though another config is the cheapest in
// between. A load that stays causes one, to the choice that a new function would get.
func TestExchangesPay(t *testing.T) {
	low, high := 3.0, 900.0
	small, large := forLoad(t, low), forLoad(t, high)
	if small.Config.Resources == large.Config.Resources {
		t.Fatalf("%v for both", small)
	}
	bursts := func(second int) float64 {
		if second%50 < 10 {
			return high
		}
		return low
	}
	if last, exchanged, searched := course(t, ample, bursts, 900); exchanged > 1 || searched > 25 { // One a burst: something else would be cheaper if it lasted.
		t.Errorf("%d exchanges, %d searches in a quarter of an hour of bursts, at last %v", exchanged, searched, last)
	}
	stays := func(second int) float64 {
		if second < 60 {
			return high
		}
		return low
	}
	if last, exchanged, _ := course(t, ample, stays, 80); exchanged > 0 || last.Resources != large.Config.Resources {
		t.Errorf("%d exchanges soon after a load, %v", exchanged, last)
	}
	if last, exchanged, _ := course(t, ample, stays, 300); exchanged != 1 || last.Resources != small.Config.Resources {
		t.Errorf("%d exchanges, at last %v, want %v", exchanged, last, small)
	}
}

// A choice that could not carry the load of the last minutes is not taken for being
// cheaper now.
func TestTheLastPeakCounts(t *testing.T) {
	few := func(r cluster.Resources) int {
		if r.GPU > 0 {
			return 20
		}
		return 8
	}
	slow := func(second int) float64 { // Long enough for an exchange to pay.
		if second%240 < 30 {
			return 900
		}
		return 3
	}
	if last, exchanged, _ := course(t, few, slow, 1500); exchanged > 1 {
		t.Errorf("%d exchanges, at last %v", exchanged, last)
	}
}

// Whatever the load does, no two exchanges are closer than the pause, and few follow
// each other without need: no load causes exchanges to and fro.
func FuzzNoFlapping(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(20))
	f.Add(uint64(3), uint64(9), uint8(61))
	f.Fuzz(func(t *testing.T, a, b uint64, lasts uint8) {
		r := rand.New(rand.NewPCG(a, b))
		levels := []float64{math.Pow(10, 3*r.Float64()), math.Pow(10, 3*r.Float64())}
		rate := func(second int) float64 {
			level := levels[second/(1+int(lasts%64))%2]
			return level * (0.8 + 0.4*r.Float64())
		}
		last, exchanged, searched := course(t, ample, rate, 600)
		if exchanged > 3 {
			t.Errorf("%v, %d s each: %d exchanges in ten minutes, at last %v", levels, 1+lasts%64, exchanged, last)
		}
		if searched > 40 {
			t.Errorf("%v, %d s each: %d searches", levels, 1+lasts%64, searched)
		}
	})
}

// A remembered load costs no search. The tuner forgets it when the requests come in
// another way, or after some minutes.
func TestConfirmedLoads(t *testing.T) {
	u := NewTuner(system(t), systems.Function{SLO: 200 * ms, Percentile: 99}, lopsided{})
	u.Within(ample)
	at := time.Unix(1000, 0)
	look := func(rate float64) bool {
		at = at.Add(15 * time.Second)
		x := u.Begin(at, rate)
		if x == nil {
			return false
		}
		x.Run()
		x.Take()
		return true
	}
	first := []bool{look(400), look(600), look(400), look(600)}
	n := u.Instances()
	if !slices.Equal(first[:1], []bool{true}) || slices.Equal(first[2:], []bool{true, true}) {
		t.Errorf("searched for 400, 600, 400, 600/s: %v", first)
	}
	if look(400); u.Instances() > n {
		t.Errorf("%d instances for less than before, which took %d", u.Instances(), n)
	}
	arrive(u, arrival.MMPP2(20, 1000, 1, 11.25), 3000, at)
	if at = u.arrivals.last; !look(600) {
		t.Error("other arrivals are not looked at")
	}
	at = at.Add(peakMemory)
	if !look(400) {
		t.Error("remembered for ever")
	}
}

// If nothing meets the objective, instances are not exchanged for a choice that is
// hardly nearer.
func TestShortIsKept(t *testing.T) {
	scarce := func(r cluster.Resources) int { return 1 + r.CPU/2000 }
	up := func(second int) float64 { return 5000 + 4000*math.Sin(float64(second)/20) }
	if last, exchanged, _ := course(t, scarce, up, 150); exchanged > 1 {
		t.Errorf("%d exchanges in an overload, at last %v", exchanged, last)
	}
}

// A load that fades away ends as none: nothing is searched for, and no instance is
// held ready or exchanged.
func TestFadedLoad(t *testing.T) {
	u := NewTuner(system(t), systems.Function{SLO: 200 * ms, Percentile: 99}, lopsided{})
	u.Within(ample)
	at, rate, searched := time.Unix(1000, 0), 40.0, 0
	_, before := u.Candidates(at, rate)
	if u.Instances() < 1 {
		t.Errorf("%d instances under load", u.Instances())
	}
	for range 100 {
		at, rate = at.Add(10*time.Second), rate*math.Exp(-1)
		if x := u.Begin(at, rate); x != nil {
			searched++
			x.Run()
			x.Take()
		}
	}
	if u.Instances() != 0 || u.revision != before || searched > 8 {
		t.Errorf("%d instances, revision %d after %d, %d searches", u.Instances(), u.revision, before, searched)
	}
}
