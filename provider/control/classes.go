package control

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/steering"
	"github.com/faas-infer/faas-infer/variant"
)

// This file holds what a controller does for requests that ask for a latency, an accuracy, a
// cost or a model (INFaaS §3.2). [variant.Classes] sorts them.

// classifier hands a function's requests to its dispatcher with the class that each belongs
// to. A request that asks nothing has class 0. Only the first request of a new class takes
// a lock.
type classifier struct {
	dispatcher *dispatch.Dispatcher
	// service is the function's name without its namespace.
	service string
	current atomic.Pointer[variant.Classes]
	// earlier has the accuracies of instances of earlier deployments, by their IDs, where the
	// current ones say something else.
	earlier atomic.Pointer[map[string]float64]
	// lesson is not nil while the sizes of a model are learnt from requests.
	lesson atomic.Pointer[lesson]
	// changing is held while current is replaced.
	changing sync.Mutex
	// shortest is the function's [annotation.Inference.Shortest].
	shortest atomic.Int64
}

var (
	_ provider.PatientDispatcher = (*classifier)(nil)
	_ provider.LoadDispatcher    = (*classifier)(nil)
)

// Invoke implements [provider.Dispatcher].
func (c *classifier) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return c.InvokePatiently(ctx, req, 0)
}

// InvokePatiently implements [provider.PatientDispatcher].
func (c *classifier) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	if l := c.lesson.Load(); l != nil {
		if err := l.attend(ctx, req); err != nil {
			return nil, err
		}
	}
	classes := c.current.Load()
	asks, err := c.ask(req, classes)
	if err != nil {
		return nil, err
	}
	if asks != (variant.Requirement{}) {
		if classes, err = c.classify(req, asks, classes); err != nil {
			return nil, err
		}
	}
	resp, err := c.dispatcher.InvokePatiently(ctx, req, patience)
	if err == nil {
		err = c.name(resp, classes.Binding(asks))
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// CountElsewhere implements [provider.LoadDispatcher].
func (c *classifier) CountElsewhere() { dispatch.CountElsewhere(c.dispatcher) }

// errNotYet answers requests that ask something before the times of the function's models are
// known.
var errNotYet = &web.Error{Status: http.StatusServiceUnavailable, After: time.Second,
	Text: "the times of the function's models are not known yet, so it is not known which one answers what the request asks"}

// classify sets the request's class and objective.
func (c *classifier) classify(req *frame.Request, asks variant.Requirement, classes *variant.Classes) (*variant.Classes, error) {
	number, known, ok := classes.Find(asks)
	if ok && !known {
		classes, number, ok = c.add(asks)
	}
	if !ok {
		_, _, met := classes.Find(asks)
		switch nearer := (variant.Requirement{Query: variant.Query{Model: asks.Model, Accuracy: asks.Accuracy}}); {
		case asks.Model != "" && !classes.Has(asks.Model):
			return classes, web.Refuse(http.StatusNotFound, "%s", classes.Unmet(asks))
		case slices.ContainsFunc(classes.Offers(), func(v variant.Variant) bool { return v.Latency == math.MaxInt64 && nearer.Met(&v) }):
			return classes, errNotYet
		case !met:
			return classes, web.Refuse(http.StatusBadRequest, "no variant of %s answers what the request asks: %s", c.service, classes.Unmet(asks))
		}
		return classes, &web.Error{Status: http.StatusServiceUnavailable, After: time.Minute, Text: "the function's requests ask for too many different things; name a variant in " + modelHeader}
	}
	req.Class = uint8(number)
	if asks.Latency > 0 {
		req.Objective = asks.Latency
	}
	req.Beyond = asks.Latency > 0 && asks.Latency < time.Duration(c.shortest.Load())
	return classes, nil
}

// add adds the class of a request. Instances learn of it at the controller's next look, which
// the request causes because it finds no instance.
func (c *classifier) add(asks variant.Requirement) (classes *variant.Classes, number int, ok bool) {
	c.changing.Lock()
	defer c.changing.Unlock()
	classes, number, ok = c.current.Load().With(asks)
	c.current.Store(classes)
	return classes, number, ok
}

// name says in an answer which revision and which variant gave it. If the variant is not as accurate as the
// request or the function asks, or not the one that the request names, name returns an error
// instead: the offers changed while the request waited.
func (c *classifier) name(resp *frame.Response, asks variant.Requirement) error {
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Header[web.RevisionHeader] = []string{strconv.FormatUint(resp.Revision, 10)}
	if resp.Variant == cluster.Whole && asks == (variant.Requirement{}) {
		return nil
	}
	v := c.current.Load().Offer(resp.Variant)
	if earlier := c.earlier.Load(); earlier != nil {
		if accuracy, ok := (*earlier)[resp.Instance]; ok {
			was := variant.Variant{Name: resp.Variant}
			if v != nil {
				was = *v
			}
			was.Accuracy, v = accuracy, &was
		}
	}
	if v == nil && asks != (variant.Requirement{}) || v != nil && !asks.Met(v) {
		return &web.Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: "the function's variants changed while the request waited; send it again"}
	}
	if resp.Variant == cluster.Whole {
		return nil
	}
	resp.Header[variantHeader] = []string{resp.Variant}
	if v != nil && v.Accuracy > 0 {
		resp.Header[accuracyHeader] = []string{strconv.FormatFloat(v.Accuracy, 'f', -1, 64)}
	}
	return nil
}

// classMemory is how long a class counts after its last request: its latency bounds what is
// planned, and variants that only it admits may be loaded.
const classMemory = time.Minute

// classing is what the classes of a function's requests make the controller do.
type classing struct {
	classifier *classifier
	// told are the classes that the instances know. stale: what the function offers may have
	// changed since.
	told  *variant.Classes
	stale bool
	loads map[classKey]*classLoad
	// at is the time of the last look, came that of the last with new requests. lately is the
	// number of all requests that came in the last minute, as those of [classLoad.lately].
	at, came time.Time
	lately   float64
	// strict is the served revision with the shortest objective that requests ask for, nil
	// if none is shorter than its own.
	strict *provider.Function
}

// classLoad is the load of one class: of requests that the same artefacts may answer within the
// same objective.
type classLoad struct {
	artefacts []string
	objective time.Duration
	arrivals  uint64
	waiting   int
	// came is the number of arrivals since the last look. lately is that of the last minute,
	// the earlier ones counting less: those of t ago e^(−t/minute).
	came, lately float64
	// part is its part of the function's requests. last is when one came.
	part part
	last time.Time
}

// newClassing returns that of a new function.
func newClassing(fn *function) classing {
	c := &classifier{dispatcher: fn.dispatcher, service: fn.Deployment.Service}
	none := variant.NewClasses(variant.Query{Accuracy: fn.Inference.Accuracy, Latency: fn.Inference.SLO})
	c.current.Store(none)
	return classing{classifier: c, told: none, loads: map[classKey]*classLoad{}}
}

// objective returns the revision whose objective capacity is planned for.
func (fn *function) objective() *provider.Function {
	if fn.classing.strict != nil {
		return fn.classing.strict
	}
	return fn.Function
}

// offer updates what the function offers, and the classes that its instances know.
func (fn *function) offer() {
	c := fn.classing.classifier
	c.shortest.Store(int64(fn.Inference.Shortest))
	c.earlier.Store(fn.overtaken()) // Before current, so that no answer is called better than it is.
	c.changing.Lock()
	if fn.classing.stale {
		fn.classing.stale = false
		c.current.Store(c.current.Load().Offering(variant.Query{Accuracy: fn.Inference.Accuracy, Latency: fn.Inference.SLO}, fn.offers()))
	}
	fn.classing.told = c.current.Load()
	c.changing.Unlock()
	for _, in := range fn.Sorted() {
		if in.serves() && in.classes != fn.servedBy(in) {
			in.Up()
		}
	}
}

// overtaken returns the accuracies of instances of earlier deployments where those of the
// artefacts with their names are others, or there are none; nil if there are no such instances. It
// remembers the accuracies of the others.
func (fn *function) overtaken() *map[string]float64 {
	var all map[string]float64
	for _, in := range fn.Sorted() {
		switch a := fn.artefact(in.Artefact.Name); {
		case a != nil && in.Revision == fn.Revision:
			in.accuracy = a.accuracy
		case a == nil || in.accuracy != a.accuracy:
			if all == nil {
				all = map[string]float64{}
			}
			all[string(in.ID)] = in.accuracy
		}
	}
	if all == nil {
		return nil
	}
	found := all // Only this takes memory: nearly always there are none.
	return &found
}

// offers lists the function's variants. One whose times are not known yet counts as slow and
// dear. A request's cost is in core-milliseconds:
// at 50 requests/s, an instance with 2 cores costs 2000/50 = 40 for each.
func (fn *function) offers() (all []variant.Variant) {
	for _, a := range fn.artefacts {
		v := variant.Variant{Model: a.of, Name: a.Name, Accuracy: a.accuracy, RPS: 1, Cost: math.Inf(1), Latency: math.MaxInt64}
		if best, ok := fn.example(a, nil); ok {
			v.Cost, v.RPS = fn.rules.Scaling.Cores(best.Config.Resources), fn.rate(best)
		}
		if len(a.candidates) > 0 {
			v.Latency = fn.rules.Least(capacity.Fastest(a.candidates).Exec)
		}
		all = append(all, v)
	}
	for _, m := range fn.unknown {
		all = append(all, variant.Variant{Model: m.Of, Name: m.Name, Accuracy: m.Accuracy, RPS: 1, Cost: math.Inf(1), Latency: math.MaxInt64})
	}
	return all
}

// several reports whether the function offers several variants.
func (fn *function) several() bool {
	return fn.classing.told != nil && len(fn.classing.told.Offers()) > 1
}

// nobody is a class that no request has. An instance that may answer none serves it.
const nobody = 1 << (batching.MaxClasses - 1)

// servedBy returns the classes that an instance serves, 0 for all. If a function has one
// variant only, that answers all. An instance of an earlier deployment answers only requests
// that ask nothing, and none if it is less accurate than the function asks.
func (fn *function) servedBy(in *instance) (set uint16) {
	switch earlier := in.Revision != fn.Revision; {
	case earlier && in.accuracy < fn.Inference.Accuracy:
		return nobody
	case !fn.several():
		return 0
	case earlier:
		return 1
	}
	if set = fn.classing.told.Serving(in.Artefact.Name); set == 0 {
		return nobody
	}
	return set
}

// admits reports whether some requests of late may be answered by an artefact.
func (fn *function) admits(name string) bool {
	for _, l := range fn.classing.loads {
		if l.active(fn.classing.at) && slices.Contains(l.artefacts, name) {
			return true
		}
	}
	return false
}

// shortest is the objective that capacity is planned for: what requests ask, but no less than the
// function allows, and no less than what enough of them ask. The objective holds for a percentage of
// the requests, so those that may miss it do not shorten it.
//
// For example 1,000 requests came in the last minute, and the objective is 200 ms for 99 % of them.
// 30 ask for 100 ms, 10 for 50 ms and the others nothing. By [steering.Allowed] 20 may miss theirs,
// so capacity is planned for 100 ms. Without the 30 it stays planned for 200 ms: no client can raise
// the cost of all requests by a few of its own.
func (fn *function) shortest(now time.Time) time.Duration {
	var asked []*classLoad
	for _, l := range fn.classing.loads {
		if l.objective > 0 && l.objective < fn.Inference.SLO && l.active(now) {
			asked = append(asked, l)
		}
	}
	slices.SortFunc(asked, func(a, b *classLoad) int { return cmp.Compare(a.objective, b.objective) })
	came := 0.0
	for _, l := range asked {
		if came += l.lately; came > steering.Allowed(fn.classing.lately, fn.Inference.Percentile) {
			return max(l.objective, fn.Inference.Shortest)
		}
	}
	return fn.Inference.SLO
}

// setClasses tells the engine the load by class, and the shortest objective that is asked.
func (fn *function) setClasses(now time.Time, f *scaling.Function, stats dispatch.Stats) {
	fn.classing.count(now, stats.Classes)
	fn.tighten(fn.shortest(now))
	f.SLO = fn.rules.Planned(fn.objective())
	if !fn.several() {
		return
	}
	for _, l := range fn.classing.loads {
		known := slices.ContainsFunc(l.artefacts, func(name string) bool { return fn.artefact(name) != nil })
		if part := l.part.settle(); known && (part >= 0.001 || l.waiting > 0) {
			f.Classes = append(f.Classes, scaling.Class{Artefacts: l.artefacts, Part: part, Waiting: l.waiting})
		}
	}
	slices.SortFunc(f.Classes, func(a, b scaling.Class) int { return slices.Compare(a.Artefacts, b.Artefacts) })
}

// tighten sets the objective that capacity is planned for.
func (fn *function) tighten(to time.Duration) {
	before := fn.objective().Inference.SLO
	switch {
	case to >= fn.Inference.SLO:
		fn.classing.strict = nil
	case fn.classing.strict == nil || fn.classing.strict.Revision != fn.Revision || fn.classing.strict.Inference.SLO != to:
		strict := *fn.Function
		strict.Inference.SLO = to
		fn.classing.strict = &strict
	}
	if fn.objective().Inference.SLO != before {
		for _, in := range fn.Sorted() {
			in.refit()
		}
	}
}

// reported adds to the counters of this replica's classes what their numbers mean.
func (fn *function) reported(s *dispatch.Stats) {
	if len(s.Classes) == 0 && fn.several() {
		s.Classes = append(s.Classes, dispatch.ClassStats{Arrivals: s.Arrivals, Waiting: s.Waiting})
	}
	classes := fn.classing.classifier.current.Load()
	for i := range s.Classes {
		s.Classes[i].Number = i
		if i < classes.Len() {
			s.Classes[i].Artefacts, s.Classes[i].Objective = classes.Admitted(i), classes.Objective(i)
		}
	}
}

// count adds what has arrived since the last look to the loads by class.
func (a *classing) count(now time.Time, classes []dispatch.ClassStats) {
	kept := math.Exp(-now.Sub(a.at).Seconds() / classMemory.Seconds())
	a.at, a.lately = now, a.lately*kept
	for key, l := range a.loads {
		l.waiting, l.came, l.lately = 0, 0, l.lately*kept
		if !slices.ContainsFunc(classes, func(c dispatch.ClassStats) bool { return key == keyOf(&c) }) {
			delete(a.loads, key)
		}
	}
	came := 0.0
	for i := range classes {
		c := &classes[i]
		l := a.loads[keyOf(c)]
		if l == nil {
			l = &classLoad{}
			for _, other := range a.loads { // Its part was 0 as long as the others had theirs.
				l.part.ages = other.part.ages
				break
			}
			if c.Number == 0 || c.Replica != "" { // Its counter is older than this function's classes.
				l.arrivals = c.Arrivals
			}
			a.loads[keyOf(c)] = l
		}
		if c.Arrivals != l.arrivals {
			l.came = float64(c.Arrivals - min(l.arrivals, c.Arrivals))
			l.arrivals, l.last = c.Arrivals, now
			l.lately += l.came
			came += l.came
		}
		l.artefacts, l.objective, l.waiting = c.Artefacts, c.Objective, c.Waiting
	}
	if came == 0 {
		return
	}
	a.lately += came
	for _, l := range a.loads {
		l.part.read(l.came, came, now.Sub(a.came))
	}
	a.came = now
}

// active reports whether the class had a request of late.
func (l *classLoad) active(now time.Time) bool { return l.waiting > 0 || now.Sub(l.last) < classMemory }

// classKey identifies a class of all replicas.
type classKey struct {
	replica string
	number  int
}

func keyOf(c *dispatch.ClassStats) classKey { return classKey{c.Replica, c.Number} }
