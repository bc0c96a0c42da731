package regression

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Shares estimates operators on shares of a GPU. It is safe for concurrent use.
type Shares struct {
	// models are those of the measured shares, the largest share first.
	models []shareModel
}

type shareModel struct {
	gpu int
	*Model
}

// NewShares makes a model from the rows of one engine on one GPU. It uses the rows with a GPU
// share.
func NewShares(rows iter.Seq[database.Row]) *Shares {
	byShare := map[int][]database.Row{}
	for r := range rows {
		if r.GPU > 0 {
			byShare[r.GPU] = append(byShare[r.GPU], r)
		}
	}
	s := &Shares{}
	for gpu, all := range byShare {
		s.models = append(s.models, shareModel{gpu, New(slices.Values(all), gpu)})
	}
	slices.SortFunc(s.models, func(a, b shareModel) int { return cmp.Compare(b.gpu, a.gpu) })
	return s
}

// Measured lists the shares with rows in %, ascending.
func (s *Shares) Measured() []int {
	var all []int
	for _, m := range s.models {
		all = append(all, m.gpu)
	}
	slices.Reverse(all)
	return all
}

// On is the times on a share of gpu %. It implements [cop.Times].
//
// An operator's own times count before those of others. So a share on which only other
// operators were measured is left out for it. A time never rises with the share: a smaller
// share takes at least as long as each larger one. Between two shares it is a + k/g, as in
// [profiler.Profile.ExecTime]; a share above the largest one counts as that one. There is no
// estimate below the smallest share.
func (s *Shares) On(gpu int) cop.Times { return onShare{s, gpu} }

type onShare struct {
	*Shares
	gpu int
}

// at is an estimate on a share.
type at struct {
	gpu int
	cop.Estimate
}

// Time implements [cop.Times].
func (o onShare) Time(op *operator.Operator, batch, millicores int, cold bool) (cop.Estimate, bool) {
	return o.time(op, batch, millicores, cold)
}

func (o onShare) time(op asked, batch, millicores int, cold bool) (cop.Estimate, bool) {
	all := o.estimates(op, batch, millicores, cold)
	i := slices.IndexFunc(all, func(e at) bool { return e.gpu <= o.gpu })
	switch {
	case i < 0:
		return cop.Estimate{}, false
	case i == 0 || all[i].gpu == o.gpu:
		return all[i].Estimate, true
	}
	small, large := all[i], all[i-1]
	inverse := func(gpu int) float64 { return 1 / float64(gpu) }
	part := (inverse(o.gpu) - inverse(large.gpu)) / (inverse(small.gpu) - inverse(large.gpu))
	line := func(from, to float64) float64 { return from + part*(to-from) }
	return cop.Estimate{
		Median: line(large.Median, small.Median), P95: line(large.P95, small.P95), CPU: line(large.CPU, small.CPU),
		Margin: math.Max(large.Margin, small.Margin), Source: max(cop.Interpolated, large.Source, small.Source),
	}, true
}

// estimates lists an operator's times by share, the largest share first. They never fall.
func (o onShare) estimates(op asked, batch, millicores int, cold bool) (all []at) {
	own := slices.ContainsFunc(o.models, func(m shareModel) bool { return m.subjects[op.Key()] != nil })
	for _, m := range o.models {
		if own && m.subjects[op.Key()] == nil {
			continue
		}
		e, ok := m.time(op, batch, millicores, cold)
		if !ok {
			continue
		}
		if n := len(all); n > 0 && e.Median < all[n-1].Median {
			e = scaled(e, all[n-1].Median)
		}
		all = append(all, at{m.gpu, e})
	}
	return all
}
