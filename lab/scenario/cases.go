package scenario

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/fleet"
)

// column is one function's recorded load, and the time that one of its counts stands for.
type column struct {
	arrivals.Column
	step time.Duration
}

// columns reads the key "traces": the columns that become the cases. Without the key there
// are none.
func (r *reader) columns(o *fleet.Object) []column {
	inner, ok := o.Object("traces")
	if !ok {
		return nil
	}
	file, wanted := inner.String("file"), inner.Strings("columns")
	step := inner.Duration("step", time.Millisecond, maxStep, 0)
	inner.Done()
	if r.overrides.Trace != "" {
		wanted, step = nil, 0
	} else if file == "" {
		inner.Need("file")
		return nil
	}
	t := r.trace(inner, file, r.overrides.Trace)
	if t == nil {
		return nil
	}
	if wanted == nil {
		for _, c := range t.Columns {
			wanted = append(wanted, c.Name)
		}
	}
	return pick(inner, t, wanted, step)
}

// pick lists columns of a trace by name.
func pick(o *fleet.Object, t *arrivals.Trace, wanted []string, step time.Duration) []column {
	if step == 0 {
		step = t.Step
	}
	if step == 0 {
		step = time.Minute
	}
	var all []column
	for _, name := range wanted {
		c, err := t.Column(name)
		switch {
		case err != nil:
			o.Fail("columns", "%v", err)
		case slices.ContainsFunc(all, func(other column) bool { return other.Name == name }):
			o.Fail("columns", "%s occurs twice", name)
		default:
			all = append(all, column{c, step})
		}
	}
	return all
}

// trace opens the trace that the key "file" names, or instead if that is given. It reads
// each trace once.
func (r *reader) trace(o *fleet.Object, file, instead string) *arrivals.Trace {
	name := instead
	if name == "" {
		name = file
		if !slices.Contains(arrivals.BuiltinTraces(), name) {
			name = r.file(name)
		}
	}
	if t, ok := r.traces[name]; ok {
		return t
	}
	t, err := arrivals.OpenTrace(name)
	switch {
	case err != nil && instead != "":
		o.Fail("file", "override: %v", err)
	case err != nil:
		o.Fail("file", "%v", err)
	}
	if r.traces == nil {
		r.traces = map[string]*arrivals.Trace{}
	}
	r.traces[name] = t
	return t
}

// bind makes the scenario's functions from the drafts, once for each case.
func (r *reader) bind(o *fleet.Object, s *Scenario, drafts []draft, columns []column) {
	uses := func(d draft) bool { return d.arrivals.fromCase() }
	if o.Has("traces") && len(drafts) > 0 && !slices.ContainsFunc(drafts, uses) {
		o.Fail("traces", "no function takes its load from them: give one arrivals: {trace: {peak: 80}}, for example")
	}
	if len(columns) == 0 {
		if i := slices.IndexFunc(drafts, uses); i < 0 {
			r.complete(o, s, drafts, column{})
			if r.apart {
				s.cases = apart(s)
			}
		} else if !o.Has("traces") {
			drafts[i].object.Fail("arrivals", "the trace has no file: name it here or in the scenario's key “traces”")
		}
		return
	}
	for _, c := range columns {
		one := *s
		one.Case = c.Name
		r.complete(o, &one, drafts, c)
		s.cases = append(s.cases, &one)
	}
	s.Functions, s.Duration = s.cases[0].Functions, s.cases[0].Duration
}

// apart returns a case for each function of a scenario.
func apart(s *Scenario) (cases []*Scenario) {
	for _, f := range s.Functions {
		one := *s
		one.Case, one.Functions = f.Name, []Function{f}
		cases = append(cases, &one)
	}
	return cases
}

// complete gives a scenario its functions and its duration. c is the trace of functions
// that name none. The duration is the file's, but not longer than all recordings.
func (r *reader) complete(o *fleet.Object, s *Scenario, drafts []draft, c column) {
	longest, endless, wrong := time.Duration(0), false, false
	for _, d := range drafts {
		a := d.arrivals
		if a.fromCase() {
			a = a.of(d.object, c)
		}
		wrong = wrong || a.make == nil
		if a.make != nil {
			if _, err := a.make(1, 0); err != nil {
				d.object.Fail("arrivals", "%v", err)
			}
		}
		d.function.Peak, d.function.Arrivals = a.peak, a.make
		s.Functions = append(s.Functions, d.function)
		longest, endless = max(longest, a.length), endless || a.length == 0
	}
	if !endless && (s.Duration == 0 || longest < s.Duration) {
		s.Duration = longest
	}
	switch {
	case len(drafts) == 0:
	case s.Duration == 0 && s.Kind != Scale && !wrong:
		o.Fail("duration", "it is missing: say how long to simulate, such as 60s")
	case s.Duration > 0 && s.Warmup >= s.Duration:
		o.Fail("warmup", "%v: it must be less than the duration, %v", s.Warmup, s.Duration)
	}
}
