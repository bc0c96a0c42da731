// Package regression says how long an operator takes from the rows of a
// database: measured, interpolated between batches, derived from its own times
// on another share, or regressed from the times of operators of its kind (the
// rest of the grid that INFless §3.3 does not measure; one regression per kind
// of operator as in Gillis §IV-A). Pure.
package regression

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Model is what a set of rows says about all operators; it implements
// [cop.Times]. It is safe for concurrent use.
type Model struct {
	// settings are those that there are rows of.
	settings []setting
	subjects map[string]*subject
	// laws are in the order of settings, each made when it is first asked for.
	laws      []func() laws
	disturbed []Disturbed
}

// New learns from the rows of one engine on one machine that were measured with
// a GPU share of gpu %, 0 for none. Of two rows of the same the later counts.
func New(rows iter.Seq[database.Row], gpu int) *Model {
	m := &Model{subjects: map[string]*subject{}}
	var kept []database.Row
	for r := range rows {
		if r.GPU != gpu || r.Validate() != nil {
			continue
		}
		kept = append(kept, r)
		if s := (setting{r.Millicores, r.Cold}); r.Millicores%1000 == 0 && !slices.Contains(m.settings, s) {
			m.settings = append(m.settings, s)
		}
	}
	slices.SortFunc(m.settings, func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.millicores, b.millicores), cmp.Compare(number(a.cold), number(b.cold)))
	})
	slices.SortStableFunc(kept, func(a, b database.Row) int {
		return cmp.Or(cmp.Compare(a.Operator, b.Operator), a.MeasuredAt.Compare(b.MeasuredAt))
	})
	for _, r := range kept {
		m.add(r)
	}
	ordered := m.ordered()
	for _, s := range ordered {
		m.disturbed = append(m.disturbed, s.calm(m.settings)...)
	}
	fill(m.settings, ordered)
	for i, s := range m.settings {
		m.laws = append(m.laws, sync.OnceValue(func() laws { return newLaws(ordered, i, float64(s.millicores)/1000) }))
	}
	return m
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// add puts a row where it belongs.
func (m *Model) add(r database.Row) {
	s := m.subjects[r.Operator]
	if s == nil {
		s = &subject{
			key: r.Operator, family: r.Family, features: map[int]operator.Features{},
			measured: make([]curve, len(m.settings)), parts: map[part]cop.Estimate{},
		}
		m.subjects[r.Operator] = s
	}
	s.features[r.Batch] = r.Features
	e := cop.Estimate{Median: r.Median, P95: max(r.P95, r.Median), CPU: r.CPU, Margin: profiler.Margin, Source: cop.Measured}
	// At most all threads computed throughout: what is above that was used by
	// others in the process.
	if most := e.Median * float64((r.Millicores+999)/1000); e.CPU == 0 || e.CPU > most {
		e.CPU = most
	}
	at := setting{r.Millicores, r.Cold}
	i := slices.Index(m.settings, at)
	if i < 0 {
		s.parts[part{at, r.Batch}] = e
		return
	}
	if j, found := s.measured[i].find(r.Batch); found {
		s.measured[i][j].estimate = e
	} else {
		s.measured[i] = slices.Insert(s.measured[i], j, point{r.Batch, e})
	}
}

// ordered lists the subjects by key, so that nothing depends on a map's order.
func (m *Model) ordered() []*subject {
	var all []*subject
	for _, s := range m.subjects {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *subject) int { return strings.Compare(a.key, b.key) })
	return all
}

// Time is how long one execution of op takes at a batch on millicores. On a
// share that is not a number of whole cores, and that was not measured, it is
// the mean under the quota ([profiler.MeanUnderQuota]) of the time on the next
// whole number. It is false only where there are no rows at all for that number
// of cores, or the operator is an unknown one and has no features.
func (m *Model) Time(op *operator.Operator, batch, millicores int, cold bool) (cop.Estimate, bool) {
	return m.time(op, batch, millicores, cold)
}

// asked is what has to be known of an operator.
type asked interface {
	Key() string
	Family() string
	Features(batch int) operator.Features
}

func (m *Model) time(op asked, batch, millicores int, cold bool) (cop.Estimate, bool) {
	if batch < 1 || millicores < 1 {
		return cop.Estimate{}, false
	}
	s := m.subjects[op.Key()]
	if millicores%1000 == 0 {
		return m.whole(s, op, batch, setting{millicores, cold})
	}
	if s != nil {
		if e, ok := s.parts[part{setting{millicores, cold}, batch}]; ok {
			return e, true
		}
	}
	e, ok := m.whole(s, op, batch, setting{(millicores + 999) / 1000 * 1000, cold})
	if quota := profiler.MeanUnderQuota(e.Median, e.CPU, millicores); ok && quota > e.Median {
		work := e.CPU
		e = scaled(e, quota)
		e.CPU, e.Source = work, max(e.Source, cop.Derived)
	}
	return e, ok
}

// whole is Time on whole cores; s is nil if op was never measured.
func (m *Model) whole(s *subject, op asked, batch int, at setting) (cop.Estimate, bool) {
	i := m.setting(at)
	if i < 0 {
		return cop.Estimate{}, false
	}
	if s == nil {
		return m.laws[i]().estimate(op.Family(), lawTerms(op.Features(batch)))
	}
	e, ok := s.curves[i].at(batch, func(b int) float64 {
		e, _ := m.laws[i]().estimate(s.family, lawTerms(op.Features(b)))
		return e.Median
	})
	if !ok {
		return m.laws[i]().estimate(s.family, lawTerms(op.Features(batch)))
	}
	return e, ok
}

// setting is the position of a setting, that with the weights elsewhere if there
// are no rows of it at all, or -1.
func (m *Model) setting(at setting) int {
	if i := slices.Index(m.settings, at); i >= 0 {
		return i
	}
	return slices.Index(m.settings, setting{at.millicores, !at.cold})
}

// lawTerms are the terms of the cost law: what an execution costs whatever its
// size, per FLOP, and per byte read, written and of weights.
func lawTerms(f operator.Features) vector {
	return vector{1, float64(f.FLOPs), float64(f.InBytes), float64(f.OutBytes), float64(f.WeightBytes)}
}
