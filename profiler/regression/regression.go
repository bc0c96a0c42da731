// Package regression estimates the time of an operator from the rows of a database. A
// time is measured, interpolated between batches, derived from the operator's times on
// another share, or regressed from operators of its kind (INFless §3.3 does not measure
// the rest of the grid; one regression per kind of operator as in Gillis §IV-A). It does
// not combine operators; package cop does. Begin with [New] and [Model.Time].
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

// Model estimates operators from a set of rows. It implements [cop.Times]. It is safe for
// concurrent use.
type Model struct {
	// settings are those that have rows.
	settings []setting
	subjects map[string]*subject
	// laws are in the order of settings. Each is fitted when it is first used.
	laws      []func() laws
	disturbed []Disturbed
}

// New makes a model from the rows of one engine on one machine. It uses the rows with a
// GPU share of gpu %, 0 for none. The later of two rows of the same point counts.
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

// add adds a row to its operator.
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
	// All threads together compute at most this long. CPU time above it was used
	// elsewhere in the process. On a GPU a kernel needs none.
	if most := e.Median * float64((r.Millicores+999)/1000); e.CPU == 0 && r.GPU == 0 || e.CPU > most {
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

// ordered lists the subjects by key, so nothing depends on a map's order.
func (m *Model) ordered() []*subject {
	var all []*subject
	for _, s := range m.subjects {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *subject) int { return strings.Compare(a.key, b.key) })
	return all
}

// Time is the time of one execution of op at a batch on a CPU share in millicores. On a
// part of a core that was not measured it is the mean under the quota
// ([profiler.MeanUnderQuota]) of the time on the next whole number of cores. It is false
// if that number of cores has no rows from which op could be estimated.
func (m *Model) Time(op *operator.Operator, batch, millicores int, cold bool) (cop.Estimate, bool) {
	return m.time(op, batch, millicores, cold)
}

// asked is the part of an operator that an estimate needs.
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

// setting is the index of a setting. If it has no rows, it is the index of the one that
// differs only in cold, or -1.
func (m *Model) setting(at setting) int {
	if i := slices.Index(m.settings, at); i >= 0 {
		return i
	}
	return slices.Index(m.settings, setting{at.millicores, !at.cold})
}

// lawTerms are the terms of the cost law: a fixed cost, and costs per FLOP and per byte of
// inputs, outputs and weights.
func lawTerms(f operator.Features) vector {
	return vector{1, float64(f.FLOPs), float64(f.InBytes), float64(f.OutBytes), float64(f.WeightBytes)}
}
