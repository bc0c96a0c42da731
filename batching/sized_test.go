package batching

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Whatever sizes requests have, each is answered once, no batch mixes them, and none is rejected that could
// be in time by the times of its own size.
func FuzzSizes(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint16(300))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 35))
		slo := time.Duration(1+random.IntN(100)) * time.Millisecond
		h := newHarness(t, NewShared(Options{SLO: slo, MaxBatch: random.IntN(3) * 8}))
		h.within = slo - Travel(slo)
		h.sizes, h.stable, h.streams, h.classes = true, false, int(seed%3), 1+random.IntN(3)
		drive(h, random, slo, int(steps%1000))
	})
}

// mini are the times of MiniLM on one core, as the provider predicted them on an AMD EPYC: 14 ms for a text of 128
// tokens, 256 elements, 54 ms for four, and those of other lengths on the line through these.
var mini = []struct{ elements, factor float64 }{{32, 0.148}, {64, 0.261}, {128, 0.493}, {256, 1}, {512, 2.09}}

// miniTime is the time of n texts of a size.
func miniTime(n int, elements int64) time.Duration {
	at := 1
	for at < len(mini)-1 && mini[at].elements < float64(elements) {
		at++
	}
	a, b := mini[at-1], mini[at]
	factor := a.factor + (float64(elements)-a.elements)/(b.elements-a.elements)*(b.factor-a.factor)
	return time.Duration(factor * (0.8 + 13.4*float64(n)) * float64(time.Millisecond))
}

// miniSizes are MiniLM's factors for a function that is planned for 512 elements.
type miniSizes struct{}

func (miniSizes) Factor(batch int, elements int64) float64 {
	return float64(miniTime(batch, elements)) / float64(miniTime(batch, 512))
}

// mixed is what clients of a function got whose requests have 16 to 256 tokens.
type mixed struct{ inTime, late, refused int }

// mix lets clients ask two instances of MiniLM for so long, each without a pause but 10 ms after a refusal. Lengths are
// multiples of step tokens. An instance runs the texts of a batch by length, one length after the other. Unless sized,
// the policy does not know how long they are.
func mix(clients, step int, sized bool, lasting time.Duration) (got mixed) {
	const slo = 100 * time.Millisecond
	p := NewShared(Options{SLO: slo})
	for _, in := range members("a", 2, 8, 0, 1) {
		for b := range in.Exec {
			in.Exec[b] = miniTime(b+1, 512)
		}
		in.Sizes = miniSizes{}
		p.Up(epoch, in)
	}
	random := rand.New(rand.NewPCG(1, 2))
	type text struct {
		client   int
		at       time.Duration
		elements int64
	}
	type event struct {
		at     time.Duration
		client int // -1 for the end of a batch
		in     Instance
		texts  []text
	}
	var events []event
	free := map[string]time.Duration{}
	waiting := map[RequestID]text{}
	for c := range clients {
		events = append(events, event{at: time.Duration(c) * time.Millisecond, client: c})
	}
	var id RequestID
	for {
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		e := event{at: time.Hour, client: -2}
		if len(events) > 0 {
			e = events[0]
		}
		if at, ok := p.Next(); ok && at.Sub(epoch) < e.at {
			e = event{at: at.Sub(epoch), client: -2}
		} else {
			events = events[1:]
		}
		if e.at > lasting {
			return got
		}
		now := epoch.Add(e.at)
		switch {
		case e.client == -1:
			p.Done(now, e.in.ID)
			for _, t := range e.texts {
				if e.at-t.at <= slo {
					got.inTime++
				} else {
					got.late++
				}
				events = append(events, event{at: e.at, client: t.client})
			}
		case e.client >= 0:
			id++
			t := text{e.client, e.at, int64(2 * step * (1 + random.IntN(256/step)))}
			t.elements = max(t.elements, 32)
			waiting[id] = t
			r := Request{ID: id, Deadline: now.Add(slo - Travel(slo))}
			if sized {
				r.Elements = t.elements
			}
			p.Add(now, r)
		}
		for _, a := range p.Actions(now) {
			if a.Dispatch == nil {
				got.refused++
				events = append(events, event{at: e.at + 10*time.Millisecond, client: waiting[a.Reject].client})
				continue
			}
			sizes, end := map[int64]int{}, event{client: -1, in: Instance{ID: a.Instance}}
			for _, id := range a.Dispatch {
				sizes[waiting[id].elements]++
				end.texts = append(end.texts, waiting[id])
			}
			end.at = max(e.at, free[string(a.Instance)])
			for elements, n := range sizes {
				end.at += miniTime(n, elements)
			}
			end.at += 300 * time.Microsecond // The exchange.
			free[string(a.Instance)] = end.at
			events = append(events, end)
		}
	}
}

// Clients with texts of 16 to 256 tokens get as many answers in time or more, and fewer refusals if the instances are
// overloaded, if the policy knows how long the texts are.
func TestMixedSizes(t *testing.T) {
	for _, step := range []int{1, 16, 64} {
		for _, clients := range []int{8, 12, 16} {
			before, after := mix(clients, step, false, 20*time.Second), mix(clients, step, true, 20*time.Second)
			t.Logf("%d clients, lengths in steps of %d: %+v, and with sizes %+v", clients, step, before, after)
			lost, few := before.late+before.refused, before.inTime/50
			if after.inTime < before.inTime-few || after.late+after.refused > max(few, lost/2+lost/4) {
				t.Errorf("%d clients, lengths in steps of %d: %+v, and with sizes %+v", clients, step, before, after)
			}
		}
	}
}
