package regression

import (
	"cmp"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
)

// change is the difference of an operator's time between two settings: a factor, and µs
// per byte of weights that come from memory in one of them. The new CPU time is threads
// times the new time.
type change struct{ factor, perByte, threads float64 }

// leastWarm is the minimum of a warm time over the cold one. A cache is several times as
// fast as memory.
const leastWarm = 0.2

func (c change) apply(e cop.Estimate, bytes float64) cop.Estimate {
	t := max(e.Median*c.factor+c.perByte*bytes, leastWarm*e.Median*c.factor)
	e = scaled(e, t)
	e.CPU = t * c.threads
	return e
}

// difference is the change between an operator's times in two settings at one batch.
func difference(from, to setting, a, b cop.Estimate, bytes float64) change {
	c := change{factor: 1, threads: b.CPU / b.Median}
	if from.millicores == to.millicores && bytes > 0 {
		c.perByte = (b.Median - a.Median) / bytes
	} else {
		c.factor = b.Median / a.Median
	}
	return c
}

// changes are an operator's changes between two settings, sorted by batch.
type changes []struct {
	batch int
	change
}

func (s *subject) changes(settings []setting, j, i int) changes {
	var all changes
	for _, p := range s.measured[i] {
		if at, found := s.measured[j].find(p.batch); found {
			c := difference(settings[j], settings[i], s.measured[j][at].estimate, p.estimate, s.weights(p.batch))
			all = append(all, struct {
				batch int
				change
			}{p.batch, c})
		}
	}
	return all
}

// at is the change at a batch. Between two batches it is interpolated over the logarithm
// of the batch; beyond them it is that of the last one.
func (cs changes) at(batch int) (change, bool) {
	if len(cs) == 0 {
		return change{}, false
	}
	k := 0
	for k < len(cs) && cs[k].batch < batch {
		k++
	}
	if k == 0 || k == len(cs) {
		return cs[min(k, len(cs)-1)].change, true
	}
	p, q := cs[k-1], cs[k]
	part := math.Log(float64(batch)/float64(p.batch)) / math.Log(float64(q.batch)/float64(p.batch))
	mid := func(a, b float64) float64 { return a + part*(b-a) }
	return change{mid(p.factor, q.factor), mid(p.perByte, q.perByte), mid(p.threads, q.threads)}, true
}

// transfers are the changes of operators between two settings. They predict the change of
// an operator that was measured in only one of the two.
type transfers struct {
	settings []setting
	// samples maps the indices of two settings, and a label, to changes.
	samples map[[2]int]map[label][]sample
}

// sample is one operator's change at a batch. Samples of similar place have similar
// changes. For the number of threads place is the time, because short operators gain
// nothing by more threads. For the memory it is the time per byte, because much
// arithmetic hides the memory.
type sample struct {
	place float64
	change
}

func newTransfers(settings []setting, subjects []*subject) *transfers {
	t := &transfers{settings, map[[2]int]map[label][]sample{}}
	for j := range settings {
		for i := range settings {
			if i != j {
				t.samples[[2]int{j, i}] = t.learn(subjects, j, i)
			}
		}
	}
	return t
}

func (t *transfers) learn(subjects []*subject, j, i int) map[label][]sample {
	byLabel := map[label][]sample{}
	for _, s := range subjects {
		for _, c := range s.changes(t.settings, j, i) {
			at, _ := s.measured[j].find(c.batch)
			one := sample{t.place(s, j, i, c.batch, s.measured[j][at].estimate.Median), c.change}
			for _, l := range labels(s.family) {
				byLabel[l] = append(byLabel[l], one)
			}
		}
	}
	for _, all := range byLabel {
		slices.SortStableFunc(all, func(a, b sample) int { return cmp.Compare(a.place, b.place) })
	}
	return byLabel
}

func (t *transfers) place(s *subject, j, i, batch int, median float64) float64 {
	if bytes := s.weights(batch); t.settings[j].millicores == t.settings[i].millicores && bytes > 0 {
		return math.Log(median / bytes)
	}
	return math.Log(median)
}

// few is the minimum number of samples of a kind, and the number of samples used.
const few = 5

// change is the median change of the nearest samples, from the narrowest kind that has
// enough. Without samples it assumes the same work on fewer threads, no gain by more
// threads, and no other difference.
func (t *transfers) change(s *subject, j, i, batch int, e cop.Estimate) change {
	var all []sample
	for _, l := range labels(s.family) {
		all = t.samples[[2]int{j, i}][l]
		if len(all) >= few {
			break
		}
	}
	if len(all) == 0 {
		busy, threads := e.CPU/e.Median, float64(t.settings[i].millicores)/1000
		return change{factor: max(1, busy/threads), threads: min(busy, threads)}
	}
	place := t.place(s, j, i, batch, e.Median)
	low, _ := slices.BinarySearchFunc(all, place, func(a sample, p float64) int { return cmp.Compare(a.place, p) })
	high := low
	for high-low < min(few, len(all)) {
		if low == 0 || high < len(all) && all[high].place-place < place-all[low-1].place {
			high++
		} else {
			low--
		}
	}
	near := all[low:high]
	return change{
		factor:  middle(near, func(s sample) float64 { return s.factor }),
		perByte: middle(near, func(s sample) float64 { return s.perByte }),
		threads: middle(near, func(s sample) float64 { return s.threads }),
	}
}

func middle(all []sample, of func(sample) float64) float64 {
	var values []float64
	for _, s := range all {
		values = append(values, of(s))
	}
	return profiler.Quantile(values, 0.5)
}
