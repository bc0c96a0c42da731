package harmonybatch

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Table I: BATCH gives the applications 1.6, 1.5 and 1.5 vCPU with batches of 1, 2 and 2. HarmonyBatch leaves the first
// as it is, and gives the others 2 GiB of a GPU with a batch of 13, at 0.63 of BATCH's cost. The text gives no times of
// the models, and those of the program lead to a batch of 14 and timeouts that are 50 ms shorter.
func TestTableI(t *testing.T) {
	batch, err := VGG19.Alone(TableI.Applications, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		cpu   float64
		batch int
	}{{1.55, 1}, {1.5, 2}, {1.5, 2}} {
		if g := batch[i]; math.Abs(g.CPU-want.cpu) > 0.051 || g.Batch != want.batch || g.GPU != 0 {
			t.Errorf("BATCH gives application %d %.2f vCPU and batches of %d, want %.2f and %d", i+1, g.CPU, g.Batch, want.cpu, want.batch)
		}
	}
	groups, err := VGG19.HarmonyBatch(TableI.Applications)
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 2 {
		t.Fatalf("there are %d groups, want 2", len(groups))
	}
	first, second := groups[0], groups[1]
	if math.Abs(first.CPU-1.6) > 0.001 || first.Batch != 1 || first.Timeouts[0] != 0 {
		t.Errorf("the first group has %.2f vCPU, batches of %d and a timeout of %v", first.CPU, first.Batch, first.Timeouts[0])
	}
	if second.GPU != 2 || second.Batch < 13 || second.Batch > 14 || len(second.Timeouts) != 2 {
		t.Errorf("the second group has %d GiB and batches of %d", second.GPU, second.Batch)
	}
	for i, want := range []time.Duration{450 * time.Millisecond, 650 * time.Millisecond} {
		if off := second.Timeouts[i] - want; off.Abs() > 60*time.Millisecond {
			t.Errorf("timeout %d is %v, want about %v", i+1, second.Timeouts[i], want)
		}
	}
	if ratio := Cost(groups) / Cost(batch); math.Abs(ratio-0.63) > 0.03 {
		t.Errorf("a request costs %.3f of BATCH's, want 0.63", ratio)
	}
}

// Two applications with one timeout gather for that long. A second one that comes seldom changes little, and the
// result lies between the timeouts (Eq. 5).
func TestEquivalentTimeout(t *testing.T) {
	of := func(a, b float64) []Application { return []Application{{Rate: a}, {Rate: b}} }
	if got := equivalent([]float64{0.4, 0.4}, of(3, 5)); math.Abs(got-0.4) > 1e-12 {
		t.Errorf("equal timeouts of 0.4 s: %v", got)
	}
	if got := equivalent([]float64{0.4, 0.9}, of(1000, 1)); got < 0.4 || got > 0.401 {
		t.Errorf("a busy application with the short timeout: %v", got)
	}
	// T = 0.45 + 20/30·(1 − exp(−10·0.2))/10 = 0.5076.
	if got := equivalent([]float64{0.45, 0.65}, of(10, 20)); math.Abs(got-0.5076) > 1e-4 {
		t.Errorf("Table I's timeouts: %v", got)
	}
}

// No grouping of neighbours is cheaper than Best, Algorithm 1 never costs more than no groups, and every plan meets the
// objectives: the timeout and the longest time fit, and the batch fills.
func TestPlansMeetObjectives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var all []Application
		for range 1 + random.IntN(6) {
			all = append(all, Application{time.Duration(300+random.IntN(1700)) * time.Millisecond, math.Pow(10, random.Float64()*3-2)})
		}
		least := math.Inf(1)
		costs := map[string]float64{}
		for _, w := range VGG19.ways() {
			groups, err := w.groups(all)
			if err != nil {
				t.Fatalf("%v %s: %v", all, w.name, err)
			}
			n := 0
			for _, g := range groups {
				n += len(g.Applications)
				for i, a := range g.Applications {
					longest := VGG19.Max[min(g.Batch, len(VGG19.Max))-1].at(g.CPU)
					if g.GPU > 0 {
						_, longest = VGG19.onGPU(g.GPU, g.Batch)
					}
					if g.Timeouts[i].Seconds()+longest > a.SLO.Seconds()+1e-6 {
						t.Errorf("%s: %v may take %v and %.3f s", w.name, a.SLO, g.Timeouts[i], longest)
					}
				}
			}
			if n != len(all) {
				t.Errorf("%s: %d of %d applications are in groups", w.name, n, len(all))
			}
			costs[w.name] = Cost(groups)
			least = min(least, costs[w.name])
		}
		if costs["best"] > least*(1+1e-9) || costs["harmonybatch"] > costs["alone"]*(1+1e-9) {
			t.Errorf("%v: %v", all, costs)
		}
	}
}
