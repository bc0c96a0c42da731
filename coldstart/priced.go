package coldstart

import (
	"slices"
	"time"
)

// Priced is this project's own policy. It loads a function at those moments of an idle
// time at which that pays: the chance that the next request comes in the next second,
// times the price of a cold start in seconds of idle time, is at least a second. A
// [Model] of the function's idle times forecasts the chance. So a function is kept in a
// burst, loaded again for a timer's tick, and unloaded when requests come at random.
//
// Priced finds the price for each function (see tally). It is the least at which the
// function would have had a quarter of the hybrid histogram policy's cold starts, as
// long as that costs at most a quarter more idle time. On a memoryless load no policy
// can lower one without raising the other: with requests at random, the share of cold
// requests and the share of time loaded sum to 1. The cost of idling can be lowered: an
// idle instance gives back its CPU and GPU share (Park), and then holds memory only.
type Priced struct {
	price     time.Duration // 0: find it for each function
	start     time.Duration
	park      time.Duration // 0: never
	functions map[string]*learner
}

// learner is Priced's state of one function.
type learner struct {
	model *Model
	tally
	chosen Windows
	last   time.Time
	stale  bool
}

const (
	// parkAfter is how long an instance is idle before it gives back its CPU and GPU
	// share. It gets the share back with the next request, and keeps its memory.
	parkAfter = 2 * time.Second
	// minUnloaded is the shortest time without an instance: loading again costs as much
	// as unloading for less time would save.
	minUnloaded = 30 * time.Second
)

var _ Policy = (*Priced)(nil)

// newPriced returns a policy without functions. With a price of 0 it finds the price for
// each function. It starts an instance by start before a request is due.
func newPriced(price, start time.Duration) *Priced {
	return &Priced{price: price, start: start, park: parkAfter, functions: map[string]*learner{}}
}

func newLearner() *learner { return &learner{model: newModel()} }

// Observe counts what each price would have done in this idle time, and learns from it.
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

// Windows returns the times at which an instance pays.
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

// windows joins the steps that pay at a price and begins each window by start earlier.
// It fills gaps between windows that are shorter than minUnloaded.
func (l *learner) windows(price int, start time.Duration) Windows {
	var all []Window
	end := -minUnloaded // A window that begins at once has no time before it.
	for step, level := range l.levels {
		if int(level) > price {
			continue
		}
		from, to := max(0, edge(step)-start), edge(step+1)
		if from-max(0, end) < minUnloaded {
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

// Forget drops the function's state.
func (p *Priced) Forget(function string) { delete(p.functions, function) }

// Marshal returns the model and the tally.
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

// Restore restores the model and the tally.
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
