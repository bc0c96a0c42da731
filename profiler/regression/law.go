package regression

import (
	"math"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/profiler/cop"
)

// label is a kind of operators: a family, a type, all views, or all.
type label struct {
	level byte
	name  string
}

// Levels of labels, the narrowest first.
const (
	ofFamily byte = iota
	ofType
	ofAll
	levels
)

// viewed ends the families of views. Views of all types are one kind, because they only
// rename data.
const viewed = "/view"

// apart are the families of pseudo-operators: the fixed cost of a run, and the yardstick
// of the machine's pace. They are not used to estimate operators, nor operators to
// estimate them.
var apart = []string{"Run", "Yardstick"}

// labels are the kinds that an operator belongs to, the narrowest first.
func labels(family string) [levels]label {
	kind := family
	if i := strings.IndexByte(family, '/'); i > 0 {
		kind = family[:i]
	}
	if strings.HasSuffix(family, viewed) {
		kind = viewed
	}
	all := label{level: ofAll}
	if slices.Contains(apart, family) {
		all.name = family
	}
	return [levels]label{{ofFamily, family}, {ofType, kind}, all}
}

// alone is the margin of a law fitted to one operator, whose errors are unknown: the time
// may be twice as long. widest is the maximum margin.
const (
	alone  = 1.0
	widest = 10.0
)

// law gives the time of operators of a kind in µs: a sum of the terms with non-negative
// weights.
type law struct {
	wall, cpu vector
	// p95 is the 95th percentile over the median; threads is the maximum of the CPU
	// time over the median.
	p95, threads, margin float64
}

func (l *law) estimate(x vector) cop.Estimate {
	t := l.wall.dot(x)
	return cop.Estimate{Median: t, P95: t * l.p95, CPU: min(l.cpu.dot(x), t*l.threads), Margin: l.margin, Source: cop.Regressed}
}

// laws maps labels to the laws of one setting.
type laws map[label]*law

// estimate uses the law of the narrowest kind, with a larger margin if that is not the
// operator's family. It is false if there is no law, not even of all operators.
func (ls laws) estimate(family string, x vector) (cop.Estimate, bool) {
	for level, kind := range labels(family) {
		if l := ls[kind]; l != nil {
			e := l.estimate(x)
			e.Margin = min(widest, e.Margin*float64(1+level))
			return e, true
		}
	}
	return cop.Estimate{}, false
}

// newLaws fits laws to the curves of setting i: for every family, for every type, and for
// all operators.
func newLaws(subjects []*subject, i int, threads float64) laws {
	groups := map[label][]*evidence{}
	var order []label
	for _, s := range subjects {
		e := newEvidence(s, i)
		if len(e.terms) == 0 {
			continue
		}
		for _, l := range labels(s.family) {
			if groups[l] == nil {
				order = append(order, l)
			}
			groups[l] = append(groups[l], e)
		}
	}
	fits := map[label]*fit{}
	for _, l := range order {
		fits[l] = newFit(groups[l], threads)
	}
	ls := laws{}
	for _, l := range order {
		ls[l] = choose(l, groups, fits)
	}
	return ls
}

// choose picks the law of a kind: its own, or a wider kind's scaled to its operators. It
// takes the law with the smallest error when each operator is left out of the fit.
func choose(kind label, groups map[label][]*evidence, fits map[label]*fit) *law {
	members := groups[kind]
	var best *law
	least := math.Inf(1)
	kinds := labels(members[0].family)
	for _, wider := range kinds[kind.level:] {
		l, e := fits[wider].scaledTo(members)
		if best == nil || e < least {
			best, least = l, e
		}
	}
	return best
}
