package coldstart

import (
	"slices"
	"time"
)

// Priced is this project's own policy. A function is loaded at those moments of
// an idle time at which this pays: where the chance that the next request comes in
// the next second, times the price of a cold start in seconds of idling, is at
// least a second. The chance is forecast from all that is known of the function's
// idle times (package forecast), so that it is kept in a burst, loaded again
// for a timer's tick, and given up when only chance could bring a request.
//
// The price is found for each function (tally): the least at which it would
// have had a quarter of the cold starts that the hybrid histogram policy would have
// had, as long as that costs at most a quarter more idle time. On a memoryless load
// no policy can lower one without raising the other: with requests at random, the
// share of cold requests and the share of time loaded sum to 1. What can be
// lowered is what idling costs: an idle instance gives back its CPU and GPU share
// (Park), and then holds memory only.
type Priced struct {
	price     time.Duration // 0: found
	start     time.Duration
	park      time.Duration // 0: never
	functions map[string]*learner
}

// learner is what Priced knows of one function.
type learner struct {
	model *Model
	tally
	chosen Windows
	last   time.Time
	stale  bool
}

const (
	// parkAfter is how long an instance does nothing before it gives back its
	// share of CPU and GPU: it does not need them, and gets them back with the
	// next request. It keeps its memory.
	parkAfter = 2 * time.Second
	// worthwhile is the shortest time without an instance: what unloading for
	// less would save, loading again costs.
	worthwhile = 30 * time.Second
)

var _ Policy = (*Priced)(nil)

// NewPriced makes a policy that knows no function yet. A price of 0 has it found
// for each function; start is how long before it is due an instance is started.
func NewPriced(price, start time.Duration) *Priced {
	return &Priced{price: price, start: start, park: parkAfter, functions: map[string]*learner{}}
}

func newLearner() *learner { return &learner{model: NewModel()} }

// Observe tallies what each price would have done in this idle time, and learns
// from it.
func (p *Priced) Observe(now time.Time, function string, idle time.Duration) {
	l := p.functions[function]
	if l == nil {
		l = newLearner()
		p.functions[function] = l
	}
	last := now.Add(-idle)
	l.expect(l.model.Predict(last))
	l.count(idle)
	l.model.Learn(last, idle)
	l.stale = true
}

// Windows are the moments that pay.
func (p *Priced) Windows(last time.Time, function string) Windows {
	l := p.functions[function]
	if l == nil {
		return Windows{KeepAlive: Range, Park: p.park}
	}
	if l.stale || !last.Equal(l.last) {
		l.expect(l.model.Predict(last))
		price := l.best()
		if p.price > 0 {
			price = levelOf(1/p.price.Seconds(), 0)
		}
		l.chosen, l.last, l.stale = l.windows(price, p.start), last, false
		l.chosen.Park = p.park
	}
	return l.chosen
}

// windows joins the steps that pay at a price and begins each window by start
// earlier. A function is not unloaded for a time that is not worthwhile.
func (l *learner) windows(price int, start time.Duration) Windows {
	var all []Window
	end := -worthwhile // A window that begins at once has no time before it.
	for step, level := range l.levels {
		if int(level) > price {
			continue
		}
		from, to := max(0, Edge(step)-start), Edge(step+1)
		if from-max(0, end) < worthwhile {
			from = max(0, end)
		}
		if len(all) > 0 && from == end || from == 0 && len(all) == 1 {
			all[len(all)-1].To = to
		} else {
			all = append(all, Window{from, to})
		}
		end = to
	}
	if len(all) == 0 {
		return Windows{}
	}
	first := all[0]
	return Windows{PreWarm: first.From, KeepAlive: first.To - first.From, Later: slices.Clip(all[1:])}
}

// Forget drops what is known.
func (p *Priced) Forget(function string) { delete(p.functions, function) }

// Marshal is the model and the tally.
func (p *Priced) Marshal(function string) []byte {
	l := p.functions[function]
	if l == nil {
		return nil
	}
	w := newWireWriter(wirePriced, 1)
	l.model.Marshal(w)
	l.tally.marshal(w)
	return *w
}

// Restore takes them up.
func (p *Priced) Restore(function string, state []byte) error {
	r, l := newWireReader(wirePriced, 1, state), newLearner()
	l.model.Restore(r)
	l.tally.restore(r)
	if err := r.Done(); err != nil {
		return err
	}
	l.stale = true
	p.functions[function] = l
	return nil
}
