package regression

import (
	"math"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/profiler/cop"
)

// labels are the kinds that an operator belongs to, the narrowest first: its
// family, its type, and all.
func labels(family string) [3]string {
	return [3]string{"family " + family, "type " + typeOf(family), ""}
}

// typeOf is the operator type that a family begins with.
func typeOf(family string) string {
	if i := strings.IndexAny(family, " /"); i > 0 {
		return family[:i]
	}
	return family
}

// alone is the margin of a law that rests on one operator, so that nothing is
// known of its errors: it may take twice as long. widest bounds all of them.
const (
	alone  = 1.0
	widest = 10.0
)

// law says how long operators of a kind take: a sum of non-negative shares of
// the terms, in µs.
type law struct {
	wall, cpu vector
	// p95 is the 95th percentile over the median; threads bounds the CPU time
	// over it.
	p95, threads, margin float64
}

func (l *law) estimate(x vector) cop.Estimate {
	t := l.wall.dot(x)
	return cop.Estimate{Median: t, P95: t * l.p95, CPU: min(l.cpu.dot(x), t*l.threads), Margin: l.margin, Source: cop.Regressed}
}

// laws are those of one setting, by label.
type laws map[string]*law

// estimate is what the narrowest kind says, with a wider margin if it is not
// the operator's family; false if there is none, not even of all operators.
func (ls laws) estimate(family string, x vector) (cop.Estimate, bool) {
	for i, label := range labels(family) {
		if l := ls[label]; l != nil {
			e := l.estimate(x)
			e.Margin = min(widest, e.Margin*float64(1+i))
			return e, true
		}
	}
	return cop.Estimate{}, false
}

// newLaws fits a law to the curves of setting i for every family, for every
// type, and for all.
func newLaws(subjects []*subject, i int, threads float64) laws {
	groups := map[string][]*evidence{}
	var order []string
	for _, s := range subjects {
		e := newEvidence(s, i)
		if len(e.terms) == 0 {
			continue
		}
		for _, label := range labels(s.family) {
			if groups[label] == nil {
				order = append(order, label)
			}
			groups[label] = append(groups[label], e)
		}
	}
	fits := map[string]*fit{}
	for _, label := range order {
		fits[label] = newFit(groups[label], threads)
	}
	ls := laws{}
	for _, label := range order {
		ls[label] = choose(label, groups, fits)
	}
	return ls
}

// choose takes for a kind the law, its own or a wider kind's, that was best at
// its operators when they were left out; a wider one is scaled to them.
func choose(label string, groups map[string][]*evidence, fits map[string]*fit) *law {
	members := groups[label]
	var best *law
	least := math.Inf(1)
	for _, wider := range widening(label, members[0].family) {
		f := fits[wider]
		l, e := f.scaledTo(members)
		if best == nil || e < least {
			best, least = l, e
		}
	}
	return best
}

// widening are a label and those of the kinds that contain it.
func widening(label, family string) []string {
	all := labels(family)
	return all[slices.Index(all[:], label):]
}
