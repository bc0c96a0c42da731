package scenario

import (
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/fleet"
)

// maxRate bounds a function's rate in requests/s.
const maxRate = 1e7

// pattern is a function's arrivals as far as the file describes them.
type pattern struct {
	// make is that of [Function.Arrivals]. It is nil if the file has an error here, or
	// if the arrivals follow the trace of the case.
	make func(load float64, seed uint64) (arrivals.Process, error)
	// peak is the highest mean rate in requests/s. length is how long the arrivals last,
	// 0 for no end.
	peak   float64
	length time.Duration
	// scaled is set if the arrivals follow a trace: the factor on its counts, or the
	// rate in requests/s of its highest count, and with it that of its lowest, 0 for as it
	// comes.
	scaled struct{ scale, peak, low float64 }
	// times is the factor on the whole load (vary).
	times float64
}

// fromCase reports whether the arrivals follow the trace of the case.
func (a pattern) fromCase() bool { return a.make == nil && (a.scaled.scale > 0 || a.scaled.peak > 0) }

// multiplied returns a with its load multiplied by times.
func (a pattern) multiplied(times float64) pattern {
	if a.make == nil {
		a.times = times
		return a
	}
	inner := a.make
	a.peak *= times
	a.make = func(load float64, seed uint64) (arrivals.Process, error) { return inner(load*times, seed) }
	return a
}

// processes are the keys below "arrivals" and the methods that read them. Each function has
// one of them.
var processes = []struct {
	key  string
	read func(r *reader, o *fleet.Object) pattern
}{
	{"constant", (*reader).constant},
	{"poisson", (*reader).poisson},
	{"gamma", (*reader).gamma},
	{"mmpp", (*reader).mmpp},
	{"steps", (*reader).steps},
	{"trace", (*reader).recorded},
	{"timestamps", (*reader).timestamps},
}

func (r *reader) arrivals(function *fleet.Object) pattern {
	o, ok := function.Object("arrivals")
	if !ok {
		function.Need("arrivals")
		return pattern{}
	}
	var known, given []string
	var read func(r *reader, o *fleet.Object) pattern
	for _, p := range processes {
		known = append(known, p.key)
		if o.Has(p.key) {
			given, read = append(given, p.key), p.read
		}
	}
	if len(given) != 1 {
		o.Done()
		function.Fail("arrivals", "%d processes: it must have one of %s", len(given), strings.Join(known, ", "))
		return pattern{}
	}
	a := read(r, o)
	o.Done()
	return a
}

func (r *reader) constant(o *fleet.Object) pattern {
	return steady(o.Number("constant", 0, maxRate, 0), arrivals.Constant)
}

func (r *reader) poisson(o *fleet.Object) pattern {
	return steady(o.Number("poisson", 0, maxRate, 0), arrivals.Poisson)
}

func (r *reader) gamma(o *fleet.Object) pattern {
	inner, ok := o.Object("gamma")
	if !ok || !inner.Need("rate", "cv") {
		return pattern{}
	}
	rate, cv := inner.Number("rate", 0, maxRate, 0), inner.Number("cv", 0.01, 100, 1)
	inner.Done()
	return steady(rate, func(rate float64, seed uint64) (arrivals.Process, error) { return arrivals.Gamma(rate, cv, seed) })
}

// steady returns arrivals of one mean rate.
func steady(rate float64, of func(rate float64, seed uint64) (arrivals.Process, error)) pattern {
	return pattern{peak: rate, make: func(load float64, seed uint64) (arrivals.Process, error) { return of(rate*load, seed) }}
}

func (r *reader) mmpp(o *fleet.Object) pattern {
	var states []arrivals.State
	peak := 0.0
	for _, s := range o.Objects("mmpp") {
		s.Need("rate", "for")
		state := arrivals.State{Rate: s.Number("rate", 0, maxRate, 0), Mean: s.Duration("for", time.Millisecond, maxDuration, time.Second)}
		s.Done()
		states, peak = append(states, state), max(peak, state.Rate)
	}
	return pattern{peak: peak, make: func(load float64, seed uint64) (arrivals.Process, error) {
		all := slices.Clone(states)
		for i := range all {
			all[i].Rate *= load
		}
		return arrivals.MMPP(all, seed)
	}}
}

func (r *reader) steps(o *fleet.Object) pattern {
	var segments []arrivals.Segment
	a := pattern{}
	for _, s := range o.Objects("steps") {
		segment := step(s)
		a.length += segment.For
		a.peak = max(a.peak, segment.From, segment.To)
		segments = append(segments, segment)
	}
	gaps := arrivals.Exponential
	switch name := o.String("gaps"); name {
	case "", "poisson":
	case "even":
		gaps = arrivals.Even
	default:
		o.Fail("gaps", "%q: it must be poisson or even", name)
	}
	a.make = func(load float64, seed uint64) (arrivals.Process, error) {
		all := slices.Clone(segments)
		for i := range all {
			all[i].From *= load
			all[i].To *= load
		}
		return arrivals.Path(all, gaps, seed)
	}
	return a
}

// step reads one of steps: {for, rate} or {for, from, to}.
func step(o *fleet.Object) arrivals.Segment {
	o.Need("for")
	s := arrivals.Segment{
		For:  o.Duration("for", time.Millisecond, maxDuration, time.Second),
		From: o.Number("from", 0, maxRate, 0),
		To:   o.Number("to", 0, maxRate, 0),
	}
	switch rate, ramp := o.Has("rate"), o.Has("from") && o.Has("to"); {
	case rate && !o.Has("from") && !o.Has("to"):
		s.From = o.Number("rate", 0, maxRate, 0)
		s.To = s.From
	case rate || !ramp:
		o.Fail("", "a step must have either rate, or from and to")
	}
	o.Done()
	return s
}
