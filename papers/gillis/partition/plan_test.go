package partition

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// quiet returns a platform without noise: a call takes 10 ms, a MiB 100 ms there and 50 ms
// back, and encoding or decoding a MiB 20 ms.
func quiet(memoryMiB, granularity float64) *Platform {
	p := &Platform{Name: "quiet", MemoryMiB: memoryMiB, Billing: Billing{Granularity: granularity}}
	p.Codec = Codec{UnitBytes: 1 << 20, Encode: Line{A: 20}, Decode: Line{A: 20}}
	p.Transfer.UnitBytes = 1 << 20
	p.Transfer.Send.Loc, p.Transfer.Send.LocPerUnit = 10, 100
	p.Transfer.Return.Loc, p.Transfer.Return.LocPerUnit = 10, 50
	return p
}

const mib = 1 << 20

func mustSpace(t testing.TB, m Model, p *Platform, l Limits) *Space {
	t.Helper()
	s, err := NewSpace(m, p, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shape writes a plan as its rounds' layers, options and masters.
func shape(p *Plan) string {
	var all []string
	for _, r := range p.Rounds {
		all = append(all, fmt.Sprintf("%d-%d %s @%d", r.First, r.End, r.Option.Name, r.Master))
	}
	return strings.Join(all, ", ")
}

// A round's time counts the master's own part, sends one after another, and the largest sum
// of a worker's times, by hand.
func TestRoundTimeByHand(t *testing.T) {
	p := quiet(1000, 1)
	parts := []Part{
		{Compute: 100, In: mib, Out: mib},
		{Compute: 300, In: 2 * mib, Out: 0},
		{Compute: 100, In: mib, Out: mib},
	}
	mean := func(master int) float64 {
		l := p.RoundTime(parts, master)
		m := l.Moments()
		return m.Mean
	}
	// Part 1 goes first: encoded at 40, way 210, decoded 40, computed 300: back at 590, with
	// nothing to decode. Part 2: encoded at 60, way 160, decoded, computed, encoded 140: back
	// at 360, decoded at 380.
	if got := mean(0); math.Abs(got-590) > 1e-9 {
		t.Errorf("part 0 on the master: %g, want 590", got)
	}
	// The master encodes 20 + 20 and computes 300; the answers came at 320 and 340 and are
	// decoded one after the other until 380.
	if got := mean(1); math.Abs(got-380) > 1e-9 {
		t.Errorf("part 1 on the master: %g, want 380", got)
	}
	// Parts 0 and 2 are encoded at 60 and 80.
	if got := mean(Nobody); math.Abs(got-590) > 1e-9 {
		t.Errorf("all on workers: %g, want 590", got)
	}
	s := mustSpace(t, &table{1, map[[2]int][]Option{{0, 1}: {{"3", parts}}}}, p, Limits{})
	plan, err := s.Fastest(0)
	if err != nil {
		t.Fatal(err)
	}
	// Each worker is billed for 20 + 100 + 20 ms.
	if plan.Work != 280 || plan.Cost != 660 || fmt.Sprint(plan.Rounds[0].Order) != "[0 2]" || plan.Functions() != 3 {
		t.Errorf("%+v", plan)
	}
}

// simulate draws a round as a queue: the master encodes, computes, and decodes answers as
// they come.
func simulate(r *rand.Rand, p *Platform, parts []Part, master int, order []int) float64 {
	emg := func(k, loc, scale float64) float64 {
		return loc + scale*r.NormFloat64() + k*scale*r.ExpFloat64()
	}
	units := func(bytes int64) float64 { return float64(bytes) / p.Transfer.UnitBytes }
	at := 0.0
	type answer struct{ at, decode float64 }
	var answers []answer
	s, b := p.Transfer.Send, p.Transfer.Return
	for _, i := range order {
		part := &parts[i]
		at += p.encode(part.In)
		in, out := units(part.In), units(part.Out)
		way := emg(s.K+s.KPerUnit*in, s.Loc+s.LocPerUnit*in, s.Scale+s.ScalePerUnit*in) +
			emg(b.K+b.KPerUnit*out, b.Loc+b.LocPerUnit*out, b.Scale+b.ScalePerUnit*out) - emg(s.K, s.Loc, s.Scale)
		answers = append(answers, answer{at + way + p.worker(part, p.crowded(len(parts))), p.decode(part.Out)})
	}
	if master != Nobody {
		at += p.crowded(len(parts)) * parts[master].Compute
	}
	for len(answers) > 0 {
		first := 0
		for i := range answers {
			if answers[i].at < answers[first].at {
				first = i
			}
		}
		at = max(at, answers[first].at) + answers[first].decode
		answers = append(answers[:first], answers[first+1:]...)
	}
	return at
}

func TestRoundTimeIsThatOfAQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := platformNamed("lambda")
	for range 20 {
		var parts []Part
		equal := r.IntN(2) == 0
		for i := range 1 + r.IntN(8) {
			part := Part{Compute: 200 * r.Float64(), In: r.Int64N(mib), Out: r.Int64N(mib)}
			if equal && i > 0 {
				part = parts[0]
			}
			parts = append(parts, part)
		}
		master := r.IntN(len(parts)+1) - 1
		order := newTimer(p).order(parts, master)
		sum, n := 0.0, 4000
		for range n {
			sum += simulate(r, p, parts, master, order)
		}
		l := p.RoundTime(parts, master)
		want, m := sum/float64(n), l.Moments()
		if math.Abs(m.Mean-want) > 0.01*want {
			t.Errorf("%+v, part %d on the master: %.1f ms, simulated %.1f", parts, master, m.Mean, want)
		}
	}
}

// The order of sends is the best one where no answer waits for another.
func TestSendOrderIsTheBest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := quiet(1000, 1)
	p.Codec.Decode = Line{}
	for range 100 {
		parts := make([]Part, 5)
		for i := range parts {
			parts[i] = Part{Compute: 100 * r.Float64(), In: r.Int64N(mib), Out: r.Int64N(mib)}
		}
		l := p.RoundTime(parts, Nobody)
		m := l.Moments()
		var try func(order []int, left []int)
		try = func(order, left []int) {
			if len(left) == 0 {
				if ms := simulate(r, p, parts, Nobody, order); ms < m.Mean-1e-9 {
					t.Fatalf("order %v takes %g ms, the chosen %g", order, ms, m.Mean)
				}
			}
			for i := range left {
				rest := append(append([]int(nil), left[:i]...), left[i+1:]...)
				try(append(order[:len(order):len(order)], left[i]), rest)
			}
		}
		try(nil, []int{0, 1, 2, 3, 4})
	}
}

// Section IV-B: the recursion picks the group that two layers share, and keeps the master's
// memory for the layer that gains most.
func TestLatencyOptimalByHandSectionIVB(t *testing.T) {
	whole := func(ms float64, weights int64) Option {
		return Option{"whole", []Part{{Compute: ms, Weights: weights * mib}}}
	}
	halves := func(ms float64, weights int64) Option {
		half := Part{Compute: ms, Weights: weights * mib}
		return Option{"1x2", []Part{half, half}}
	}
	m := &table{3, map[[2]int][]Option{
		{0, 1}: {whole(100, 30), halves(50, 30)},
		{1, 2}: {whole(100, 30), halves(50, 30)},
		{0, 2}: {whole(200, 60), halves(105, 60)},
		{2, 3}: {whole(40, 50)},
	}}
	for _, c := range []struct {
		memory float64
		ms     float64
		shape  string
	}{
		// All fits. Two rounds of 50 + 10 ms would be slower than one of 105 + 10.
		{110, 155, "0-2 1x2 @0, 2-3 whole @0"},
		// 90 MiB: layer 2 (50 MiB) on the master and layers 0 and 1 on two workers: 115 + 40.
		// Instead layers 0 and 1 on the master would leave layer 2 to a worker: 115 + 50.
		{90, 155, "0-2 1x2 @-1, 2-3 whole @0"},
		// 50 MiB: layers 0 and 1 do not fit into one function together any more.
		{50, 160, "0-1 1x2 @-1, 1-2 1x2 @-1, 2-3 whole @0"},
	} {
		s := mustSpace(t, m, quiet(c.memory, 1), Limits{})
		plan, err := s.Fastest(0)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Time.Mean != c.ms || shape(&plan) != c.shape {
			t.Errorf("%g MiB: %g ms by %s, want %g by %s", c.memory, plan.Time.Mean, shape(&plan), c.ms, c.shape)
		}
	}
	_, err := NewSpace(m, quiet(49, 1), Limits{})
	var memory *MemoryError
	if !errors.As(err, &memory) || memory.Least != 50*mib || memory.First != 2 || memory.End != 3 {
		t.Errorf("49 MiB: %v", err)
	}
}

// Section IV-C1: C = (⌈T/D⌉ + Σ⌈Tw/D⌉)·D, with T rounded up once and not by round.
func TestBilledDurationSectionIVC(t *testing.T) {
	m := &table{2, map[[2]int][]Option{
		{0, 1}: {{"whole", []Part{{Compute: 130}}}, {"1x2", []Part{{Compute: 65}, {Compute: 65}}}},
		{1, 2}: {{"whole", []Part{{Compute: 130}}}},
	}}
	for _, c := range []struct{ d, slo, cost float64 }{
		{100, 1000, 300}, // 260 ms on the master
		{100, 250, 400},  // 75 + 130 ms on the master, 65 on a worker
		{1, 250, 270},
		{0, 250, 270},
	} {
		plan, err := mustSpace(t, m, quiet(100, c.d), Limits{}).Cheapest(SLO{Ms: c.slo})
		if err != nil || plan.Cost != c.cost {
			t.Errorf("D = %g, SLO %g: %s costs %g, want %g (%v)", c.d, c.slo, shape(&plan), plan.Cost, c.cost, err)
		}
	}
	_, err := mustSpace(t, m, quiet(100, 1), Limits{}).Cheapest(SLO{Ms: 204})
	var slow *SLOError
	if !errors.As(err, &slow) || slow.Ms != 205 || !strings.Contains(err.Error(), "205.0 ms") {
		t.Errorf("SLO 204: %v, want the fastest plan's 205 ms", err)
	}
}

// recursion is L(1, n, M) of §IV-B with Algorithm 1, literally: budgets in whole MiB, and
// t(l, b) by options. Activations count once at their maximum, so it tries every maximum.
func recursion(s *Space, memory int64) float64 {
	best := math.Inf(1)
	maxima := map[int64]bool{}
	for first := range s.layers {
		for end := first + 1; end <= s.layers; end++ {
			for _, r := range s.roundsOf(first, end) {
				maxima[r.Activations] = true
			}
		}
	}
	for activations := range maxima {
		budget := (memory - activations) / mib
		if budget < 0 {
			continue
		}
		optimal := func(first, end int, b int64) float64 { // Algorithm 1
			ms := math.Inf(1)
			for _, r := range s.roundsOf(first, end) {
				if r.Activations <= activations && r.Weights <= b*mib {
					ms = min(ms, r.Time.Mean)
				}
			}
			return ms
		}
		l := make([][]float64, s.layers+1)
		l[0] = make([]float64, budget+1)
		for j := 1; j <= s.layers; j++ {
			l[j] = make([]float64, budget+1)
			for m := range l[j] {
				l[j][m] = math.Inf(1)
			}
			for k := range j {
				ms := make([]float64, budget+1)
				for b := range ms {
					ms[b] = optimal(k, j, int64(b))
				}
				for m := range l[j] {
					for b := 0; b <= m; b++ {
						l[j][m] = min(l[j][m], l[k][m-b]+ms[b])
					}
				}
			}
		}
		best = min(best, l[s.layers][budget])
	}
	return best
}

func TestFastestIsTheRecursionSectionIVB(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 20 {
		p := platformNamed("lambda")
		p.MemoryMiB = float64(100 + r.IntN(60))
		m := randomModel(r, 3+r.IntN(3))
		// Weights in whole MiB make the recursion's budgets exact, and few maxima of
		// activations make it fast.
		for _, options := range m.options {
			for _, o := range options {
				for k := range o.Parts {
					part := &o.Parts[k]
					part.Weights = part.Weights / mib * mib
					part.Activations = part.Activations / (4 * mib) * 4 * mib
					part.In, part.Out = part.In/65536*65536, 65536
				}
			}
		}
		s, err := NewSpace(m, p, Limits{})
		if err != nil {
			continue
		}
		plan, err := s.Fastest(0)
		if err != nil {
			t.Fatal(err)
		}
		if want := recursion(s, p.Memory()); math.Abs(plan.Time.Mean-want) > 1e-6 {
			t.Errorf("model %d: %g ms, by the recursion %g", i, plan.Time.Mean, want)
		}
	}
}

// exact checks the planner against the exhaustive search for one random model.
func exact(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	p := platformNamed([]string{"lambda", "lambda-release", "knix", "google"}[r.IntN(4)])
	p.MemoryMiB = float64(60 + r.IntN(300))
	p.Billing.Granularity = []float64{0, 1, 100}[r.IntN(3)]
	limits := Limits{Functions: []int{0, 0, 2, 5}[r.IntN(4)], Placement: Placement(r.IntN(2))}
	percentile := []float64{0, 0, 40, 75, 95, 99.9}[r.IntN(6)]
	s, err := NewSpace(randomModel(r, 2+r.IntN(4)), p, limits)
	if err != nil {
		var memory *MemoryError
		if !errors.As(err, &memory) {
			t.Fatal(err)
		}
		return
	}
	const atMost = 1000000
	if s.count() > atMost/10 {
		return
	}
	want, none := s.exhaustive(SLO{math.Inf(1), percentile}, atMost)
	fastest, err := s.Fastest(percentile)
	if (none == nil) != (err == nil) {
		t.Fatalf("seed %d: %v, exhaustively %v", seed, err, none)
	}
	if err != nil {
		return
	}
	compare := func(slo SLO, got, want *Plan) {
		t.Helper()
		if math.Abs(got.Cost-want.Cost) > 1e-5 || math.Abs(got.Time.At(percentile)-want.Time.At(percentile)) > 1e-4 {
			t.Errorf("seed %d, SLO %v: %.6f ms at %.6f by %s\nexhaustively %.6f ms at %.6f by %s", seed, slo,
				got.Time.At(percentile), got.Cost, shape(got), want.Time.At(percentile), want.Cost, shape(want))
		}
		if !s.fits(got) {
			t.Errorf("seed %d, SLO %v: %s does not fit", seed, slo, shape(got))
		}
	}
	compare(SLO{math.Inf(1), percentile}, &fastest, &want)
	for _, factor := range []float64{1, 1.02, 1.1, 1.3, 2, 10} {
		slo := SLO{fastest.Time.At(percentile) * factor, percentile}
		want, err := s.exhaustive(slo, atMost)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Cheapest(slo)
		if err != nil {
			t.Fatal(err)
		}
		if got.Time.At(percentile) > slo.Ms+2*tick {
			t.Errorf("seed %d: SLO %v is not kept by %s", seed, slo, shape(&got))
		}
		compare(slo, &got, &want)
	}
}

func TestExactEqualsExhaustive(t *testing.T) {
	for seed := range uint64(400) {
		exact(t, seed)
	}
}

// Section V-C compares with brute force on VGG-11. The release restricts it to few options
// and to plans that fuse the first six layers.
func TestExactEqualsExhaustiveOnVGG11SectionVC(t *testing.T) {
	p := platformNamed("lambda")
	all := vgg(11, p, bfShapes)
	for _, s := range []*Space{mustSpace(t, all, p, Limits{}), mustSpace(t, fuse(all, 6), p, Limits{})} {
		checkVGG11(t, s)
	}
	if n := fuse(all, 6).Layers(); n != all.Layers()-5 {
		t.Errorf("%d layers after six of %d are fused", n, all.Layers())
	}
}

func checkVGG11(t *testing.T, s *Space) {
	t.Helper()
	for _, slo := range []SLO{{500, 0}, {600, 0}, {600, 99}} {
		got, err := s.Cheapest(slo)
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.exhaustive(slo, 1e8)
		if err != nil {
			t.Fatal(err)
		}
		if got.Cost != want.Cost || math.Abs(got.Time.Mean-want.Time.Mean) > tick {
			t.Errorf("SLO %v: %s at %g, exhaustively %s at %g", slo, shape(&got), got.Cost, shape(&want), want.Cost)
		}
	}
}

func FuzzExactEqualsExhaustive(f *testing.F) {
	f.Add(uint64(1 << 40))
	f.Fuzz(func(t *testing.T, seed uint64) { exact(t, seed) })
}

func TestMoreSLOAndMoreMemoryNeverCostMore(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 5 {
		m := randomModel(r, 12)
		p := platformNamed("lambda")
		least := 0.0
		p.MemoryMiB = 1
		var need *MemoryError
		if _, err := NewSpace(m, p, Limits{}); errors.As(err, &need) {
			least = math.Ceil(float64(need.Least) / mib)
		} else {
			t.Fatal("1 MiB is enough")
		}
		before := math.Inf(1)
		for _, memory := range []float64{least, least * 1.2, least * 2, least * 4, 5000} {
			p.MemoryMiB = memory
			s := mustSpace(t, m, p, Limits{})
			fastest, err := s.Fastest(0)
			if err != nil {
				t.Fatal(err)
			}
			if fastest.Time.Mean > before+tick {
				t.Errorf("%g MiB: %g ms, with less memory %g", memory, fastest.Time.Mean, before)
			}
			before = fastest.Time.Mean
			cost := math.Inf(1)
			for slo := before; slo < 3*before; slo *= 1.1 {
				plan, err := s.Cheapest(SLO{Ms: slo})
				if err != nil {
					t.Fatal(err)
				}
				if plan.Cost > cost {
					t.Errorf("SLO %g: costs %g, with a lower SLO %g", slo, plan.Cost, cost)
				}
				cost = plan.Cost
			}
		}
	}
}

// The least memory that an error names is enough, and 1 byte less is not.
func TestTheLeastMemoryIsEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	for range 50 {
		m := randomModel(r, 1+r.IntN(8))
		p := platformNamed("knix")
		p.MemoryMiB = 0.001
		var need *MemoryError
		if _, err := NewSpace(m, p, Limits{}); !errors.As(err, &need) {
			t.Fatal(err)
		}
		p.MemoryMiB = float64(need.Least) / mib
		if _, err := mustSpace(t, m, p, Limits{}).Fastest(0); err != nil {
			t.Error(err)
		}
		p.MemoryMiB = float64(need.Least-1) / mib
		if _, err := NewSpace(m, p, Limits{}); err == nil {
			t.Errorf("%d bytes are enough, not %d", need.Least-1, need.Least)
		}
	}
}

// A part on the master saves a call. It hinders if the answers of many workers wait for it.
func TestBothPlacementsAlgorithm1(t *testing.T) {
	p := quiet(100, 1)
	best := func(parts int, placement Placement) (*Space, Plan) {
		o := Option{Name: "cut"}
		for range parts {
			o.Parts = append(o.Parts, Part{Compute: 100, In: mib, Out: mib})
		}
		s := mustSpace(t, &table{1, map[[2]int][]Option{{0, 1}: {o}}}, p, Limits{Placement: placement})
		plan, err := s.Fastest(0)
		if err != nil {
			t.Fatal(err)
		}
		return s, plan
	}
	for _, c := range []struct {
		parts     int
		placement Placement
		ms        float64
		shape     string
	}{
		// Encoded at 20, back at 320, decoded at 340; the master's part is done long before.
		{2, WhereItHelps, 340, "0-1 cut @0"},
		{2, WheneverItFits, 340, "0-1 cut @0"},
		// The master encodes for 300 ms, computes until 400 and decodes 15 answers until 700.
		// Without a part it encodes until 320, and the last answer is back at 620.
		{16, WhereItHelps, 640, "0-1 cut @-1"},
		{16, WheneverItFits, 700, "0-1 cut @0"},
	} {
		_, plan := best(c.parts, c.placement)
		if plan.Time.Mean != c.ms || shape(&plan) != c.shape {
			t.Errorf("%d parts: %g ms by %s, want %g by %s", c.parts, plan.Time.Mean, shape(&plan), c.ms, c.shape)
		}
	}
	// The master cannot keep a part of both layers: both placements then are equal.
	half := Option{"1x2", []Part{{Weights: 2 * mib}, {Weights: 2 * mib}}}
	m := &table{2, map[[2]int][]Option{{0, 1}: {half}, {1, 2}: {half}}}
	for memory, want := range map[float64]int{3: 2, 4: 1} {
		s := mustSpace(t, m, quiet(memory, 1), Limits{Placement: WheneverItFits})
		if n := len(s.roundsOf(0, 1)); n != want {
			t.Errorf("%g MiB: %d placements, want %d", memory, n, want)
		}
	}
}

func TestTiesGoToFewerPartsThenToNames(t *testing.T) {
	whole := Option{"whole", []Part{{Compute: 10}}}
	two := Option{"whole", []Part{{Compute: 20}}}
	m := &table{2, map[[2]int][]Option{{0, 1}: {whole}, {1, 2}: {whole}, {0, 2}: {two}}}
	plan, err := mustSpace(t, m, quiet(100, 1), Limits{}).Fastest(0)
	if err != nil || len(plan.Rounds) != 1 {
		t.Errorf("%s, want one round (%v)", shape(&plan), err)
	}
	half := []Part{{Compute: 5}, {Compute: 5}}
	m = &table{1, map[[2]int][]Option{{0, 1}: {{"b", half}, {"a", half}}}}
	plan, err = mustSpace(t, m, quiet(100, 1), Limits{}).Cheapest(SLO{Ms: 100})
	if err != nil || plan.Rounds[0].Option.Name != "a" {
		t.Errorf("%s, want a (%v)", shape(&plan), err)
	}
}

func TestSameInputSamePlan(t *testing.T) {
	p := platformNamed("lambda")
	m := vgg(16, p, generalShapes)
	plan := func() (Plan, Plan) {
		s := mustSpace(t, m, p, Limits{})
		fastest, err := s.Fastest(99)
		if err != nil {
			t.Fatal(err)
		}
		cheapest, err := s.Cheapest(SLO{700, 0})
		if err != nil {
			t.Fatal(err)
		}
		return fastest, cheapest
	}
	f, c := plan()
	for range 3 {
		if f2, c2 := plan(); !reflect.DeepEqual(f, f2) || !reflect.DeepEqual(c, c2) {
			t.Fatal("two runs differ")
		}
	}
}

func TestLimitOfFunctions(t *testing.T) {
	p := platformNamed("knix")
	m := vgg(16, p, generalShapes)
	before := 0.0
	for _, functions := range []int{0, 12, 4, 2, 1} {
		s := mustSpace(t, m, p, Limits{Functions: functions})
		plan, err := s.Fastest(0)
		if err != nil {
			t.Fatal(err)
		}
		if functions > 0 && plan.Functions() > functions || plan.Time.Mean < before {
			t.Errorf("at most %d functions: %d, %g ms", functions, plan.Functions(), plan.Time.Mean)
		}
		before = plan.Time.Mean
	}
	p.MemoryMiB = 450 // The first dense layer alone has 392 MiB.
	if _, err := mustSpace(t, m, p, Limits{Functions: 1}).Fastest(0); err == nil || !strings.Contains(err.Error(), "functions 1") {
		t.Errorf("one function of 450 MiB: %v", err)
	}
}

func TestBadModels(t *testing.T) {
	for _, c := range []struct {
		model *table
		want  string
	}{
		{&table{}, "no layers"},
		{&table{1, nil}, "grouped"},
		{&table{1, map[[2]int][]Option{{0, 1}: {{Name: "x"}}}}, "no parts"},
		{&table{1, map[[2]int][]Option{{0, 1}: {{"x", []Part{{Compute: math.NaN()}}}}}}, "finite"},
		{&table{1, map[[2]int][]Option{{0, 1}: {{"x", []Part{{In: -1}}}}}}, "below 0"},
	} {
		if _, err := NewSpace(c.model, quiet(10, 1), Limits{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	s := mustSpace(t, vgg(11, platformNamed("lambda"), bfShapes), platformNamed("lambda"), Limits{})
	if _, err := s.exhaustive(SLO{Ms: 500}, 1000); err == nil {
		t.Error("all plans of VGG-11 are tried in 1000 rounds")
	}
}
