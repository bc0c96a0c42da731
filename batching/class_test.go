package batching

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// The tests of all policies include the buffer, which a paper's package registers.
func init() {
	Register(Kind{Name: "batch", Tuned: true, New: func(o Options) Policy { return NewBuffer(o) }})
}

// class returns a random class of a request.
func (h *harness) class(random *rand.Rand) uint8 {
	if h.classes == 1 {
		return 0
	}
	return uint8(random.IntN(h.classes))
}

// some returns a random set of classes for an instance: mostly the classes up to some
// class, as of variants that are more and less accurate.
func (h *harness) some(random *rand.Rand) uint16 {
	if h.classes == 1 {
		return 0
	}
	switch random.IntN(8) {
	case 0:
		return 0
	case 1:
		return 1 + uint16(random.IntN(every))
	default:
		return 1<<(1+random.IntN(h.classes)) - 1
	}
}

// Classes belong to one lane exactly if the same instances serve them.
func FuzzLanes(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		random := rand.New(rand.NewPCG(seed, 4))
		sets := make([]uint16, n%8)
		for i := range sets {
			sets[i] = uint16(random.IntN(1 << random.IntN(MaxClasses+1)))
		}
		l := newLanes(sets)
		for a := range MaxClasses {
			for b := range MaxClasses {
				alike := !slices.ContainsFunc(sets, func(s uint16) bool { return has(s, a) != has(s, b) })
				if alike != (l.of[a] == l.of[b]) {
					t.Fatalf("%b: lanes %d and %d of classes %d and %d", sets, l.of[a], l.of[b], a, b)
				}
			}
			if lane := int(l.of[a]); lane > a || !has(l.all, lane) || !has(l.inside[lane], a) || int(l.of[lane]) != lane {
				t.Fatalf("%b: class %d is in lane %d of %b with %b", sets, a, lane, l.all, l.inside[lane])
			}
		}
	})
}

// Whatever classes requests and instances have, each request is answered once, by an
// instance that serves its class, and no request waits while such an instance is idle.
func FuzzClasses(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint16(300))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		for _, name := range Names() {
			random := rand.New(rand.NewPCG(seed, 6))
			slo := time.Duration(1+random.IntN(100)) * time.Millisecond
			p, err := New(name, Options{SLO: slo, MaxBatch: random.IntN(3) * 8})
			if err != nil {
				t.Fatal(err)
			}
			h := newHarness(t, conserving{p, t})
			h.classes, h.stable = 2+random.IntN(MaxClasses-1), false
			drive(h, random, slo, int(steps%1000))
		}
	})
}

// conserving is a policy that is checked to use idle instances.
type conserving struct {
	Policy
	t *testing.T
}

func (p conserving) Actions(now time.Time) []Action {
	actions := p.Policy.Actions(now)
	switch p := p.Policy.(type) {
	case *Shared:
		for _, k := range p.fleet.kinds {
			idle := k.free.Len() > 0 && k.lanes&p.queued != 0 && !k.held(p)
			if _, last := p.count(k); idle && p.clock.since(now)+k.exec[0] <= last {
				return slices.Concat(actions, []Action{{Instance: "nobody, though one is idle", Dispatch: []RequestID{0}}})
			}
		}
	case *InFless:
		for rest := p.spilled; rest != 0; rest &= rest - 1 {
			if p.room(uint8(lowest(rest))) != nil {
				return slices.Concat(actions, []Action{{Instance: "nobody, though one has room", Dispatch: []RequestID{0}}})
			}
		}
	case *Buffer:
		for i := range p.lanes {
			for _, g := range p.groups.all {
				if p.lanes[i].formed.len() > 0 && has(g.lanes, i) && g.idle.Len() > 0 {
					return slices.Concat(actions, []Action{{Instance: "nobody, though one is idle", Dispatch: []RequestID{0}}})
				}
			}
		}
	}
	return actions
}

// logged is a policy whose actions are noted.
type logged struct {
	Policy
	log *[]string
}

func (p logged) Actions(now time.Time) []Action {
	actions := p.Policy.Actions(now)
	for _, a := range actions {
		*p.log = append(*p.log, fmt.Sprint(now.Sub(epoch), a))
	}
	return actions
}

// If every instance serves all classes, they change nothing.
func FuzzClassesThatAllServe(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, uint16(300))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		for _, name := range Names() {
			var logs [2][]string
			for i := range logs {
				random := rand.New(rand.NewPCG(seed, 1))
				slo := time.Duration(1+random.IntN(100)) * time.Millisecond
				p, err := New(name, Options{SLO: slo, MaxBatch: random.IntN(3) * 8})
				if err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					p = classed{p, uint8(seed)}
				}
				h := newHarness(t, logged{p, &logs[i]})
				h.stable = false
				drive(h, random, slo, int(steps%1000))
			}
			if !slices.Equal(logs[0], logs[1]) {
				t.Fatalf("%s: with classes\n%v\nwithout\n%v", name, logs[1], logs[0])
			}
		}
	})
}

// classed gives the requests of a policy any classes, and the instances all of them.
type classed struct {
	Policy
	seed uint8
}

func (p classed) Add(now time.Time, r Request) {
	r.Class = (uint8(r.ID)*37 + p.seed) % MaxClasses
	p.Policy.Add(now, r)
}

func (p classed) Up(now time.Time, in Instance) {
	in.Classes = every
	p.Policy.Up(now, in)
}

// variants is a function with accurate instances, which serve both classes, and others,
// which serve class 0 only, with the times of a full batch of either.
func variants(accurate, others int, long, short time.Duration) []Instance {
	all := members("accurate", accurate, 8, long, 0.4)
	for _, in := range members("other", others, 8, short, 0.4) {
		in.Classes = 1
		all = append(all, in)
	}
	return all
}

// offerClasses offers both classes to the instances, at rates in requests/s. It returns
// the part of each class that was answered in time.
func offerClasses(name string, all []Instance, slo time.Duration, rates [2]float64, within [2]time.Duration, seconds int) (met [2]float64) {
	p, err := New(name, Options{SLO: slo})
	if err != nil {
		panic(err)
	}
	for _, in := range all {
		in.Timeout = slo / 4
		p.Up(epoch, in)
	}
	random := rand.New(rand.NewPCG(7, 7))
	index, free := map[cluster.InstanceID]int{}, make([]time.Duration, len(all))
	for i, in := range all {
		index[in.ID] = i
	}
	var running ends
	var next [2]time.Duration
	type arrival struct {
		class int
		due   time.Duration
	}
	waiting := map[RequestID]arrival{}
	var counts, inTime [2]int
	end := time.Duration(seconds) * time.Second
	for id := RequestID(1); ; {
		class := 0
		if next[1] < next[0] {
			class = 1
		}
		at, what := next[class], 0
		if len(running) > 0 && running[0].at <= at {
			at, what = running[0].at, 1
		}
		if t, ok := p.Next(); ok && t.Before(epoch.Add(at)) {
			at, what = t.Sub(epoch), 2
		}
		if at > end {
			break
		}
		now := epoch.Add(at)
		switch what {
		case 0:
			due := at + within[class]
			waiting[id] = arrival{class, due}
			p.Add(now, Request{ID: id, Deadline: epoch.Add(due), Class: uint8(class), Within: within[class]})
			id++
			counts[class]++
			next[class] += time.Duration(random.ExpFloat64() / rates[class] * float64(time.Second))
		case 1:
			p.Done(now, all[running.pop()].ID)
		}
		for _, a := range p.Actions(now) {
			if a.Dispatch == nil {
				continue
			}
			i := index[a.Instance]
			free[i] = max(free[i], at) + all[i].Exec[len(a.Dispatch)-1]
			running.push(free[i], i)
			for _, id := range a.Dispatch {
				if r := waiting[id]; free[i] <= r.due {
					inTime[r.class]++
				}
			}
		}
	}
	for c := range met {
		met[c] = float64(inTime[c]) / float64(max(1, counts[c]))
	}
	return met
}

// At nine tenths of what the instances of either variant serve, both classes are in time.
// Accurate instances take over requests for which the others do not suffice.
func TestClassesShareTheInstances(t *testing.T) {
	const slo = 100 * time.Millisecond
	within := [2]time.Duration{slo - Travel(slo), slo - Travel(slo)}
	// An accurate instance serves 200 requests/s, another 400.
	for _, c := range []struct {
		accurate, others int
		rates            [2]float64
	}{{4, 4, [2]float64{1300, 600}}, {4, 1, [2]float64{700, 300}}, {1, 8, [2]float64{2800, 110}}, {4, 0, [2]float64{300, 300}}} {
		all := variants(c.accurate, c.others, 40*time.Millisecond, 20*time.Millisecond)
		if met := offerClasses(SharedName, all, slo, c.rates, within, 20); min(met[0], met[1]) < 0.99 {
			t.Errorf("%d accurate, %d others, %v requests/s: %.4f in time", c.accurate, c.others, c.rates, met)
		}
	}
}

// The accurate instance stays free for the requests that only it may answer, even if it is
// the quickest: behind another request they would be late.
func TestAccurateInstancesStayFree(t *testing.T) {
	const slo = 20 * time.Millisecond
	within := [2]time.Duration{slo - Travel(slo), 12 * time.Millisecond}
	all := variants(1, 8, 20*time.Millisecond, 40*time.Millisecond)
	if met := offerClasses(SharedName, all, slo, [2]float64{60, 2}, within, 60); min(met[0], met[1]) < 0.97 {
		t.Errorf("%.4f in time", met)
	}
}

// A few accurate instances are busy if their own class is, however many others are idle.
// Their batches are then no longer than the time in which one of the few becomes free.
func TestAFewAccurateInstancesAreBusy(t *testing.T) {
	const slo = 100 * time.Millisecond
	p := NewShared(Options{SLO: slo})
	for _, in := range variants(1, 9, 80*time.Millisecond, 40*time.Millisecond) {
		p.Up(epoch, in)
	}
	offer := func(from time.Time, classes ...uint8) (now time.Time) {
		now = from
		for id := RequestID(1); now.Before(from.Add(3 * time.Second)); id++ {
			now = now.Add(10 * time.Millisecond)
			for _, class := range classes {
				p.Add(now, Request{ID: id, Deadline: now.Add(slo), Class: class})
				p.Cancel(now, id)
			}
		}
		return now
	}
	accurate, others := p.fleet.kinds[0], p.fleet.kinds[1]
	now := offer(epoch, 0)
	// Alone with class 0, all ten compete: 95 ms · 10/11 is more than a full batch takes.
	if l := p.load(p.clock.since(now), accurate); accurate.full != 8 || l.rate > 105 || l.capacity < 1000 {
		t.Errorf("without class 1: %+v, batches of %d", l, accurate.full)
	}
	// One instance serves class 1: 95 ms / 2 is more than a batch of three takes.
	now = offer(now, 0, 1)
	if l := p.load(p.clock.since(now), accurate); accurate.full != 3 || l.rate > 105 || l.capacity > 100 {
		t.Errorf("accurate: %+v, batches of %d", l, accurate.full)
	}
	if l := p.load(p.clock.since(now), others); others.full != 8 || l.capacity < 1000 {
		t.Errorf("others: %+v, batches of %d", l, others.full)
	}
}

// Requests with much shorter objectives than the others are in time, too: no batch of
// the others is longer than they can wait.
func TestShortObjectivesAmongLongOnes(t *testing.T) {
	const slo = time.Second
	for _, n := range []int{1, 4} {
		// One takes 20 ms, 32 take 206 ms.
		all := members("a", n, 32, 206*time.Millisecond, 0.1)
		within := [2]time.Duration{slo - Travel(slo), 75 * time.Millisecond}
		rates := [2]float64{float64(n) * 50, float64(n) * 5}
		if met := offerClasses(SharedName, all, slo, rates, within, 30); min(met[0], met[1]) < 0.95 {
			t.Errorf("%d instances, %v requests/s: %.4f in time", n, rates, met)
		}
	}
}
