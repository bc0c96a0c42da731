package coldstart

import (
	"math"
)

// countScale is the factor by which counts are multiplied before they are rounded.
const countScale = 64

// Marshal writes the model's state, at most some KiB.
func (m *Model) Marshal(w *wireWriter) {
	w.Count(uint64(m.learned))
	for _, weight := range m.weights {
		w.Real(float64(weight))
	}
	w.Count(uint64(len(m.recent)))
	for _, step := range m.recent {
		w.Count(uint64(step))
	}
	m.all.marshal(w)
	m.day.marshal(w)
}

// Restore reads the state into a new model. The reader keeps errors.
func (m *Model) Restore(r *wireReader) {
	m.learned = int(r.Count(math.MaxInt32))
	sum := float32(0)
	for i := range m.weights {
		m.weights[i] = max(tiny, float32(r.Real(1)))
		sum += m.weights[i]
	}
	for i := range m.weights {
		m.weights[i] /= sum
	}
	m.recent = make([]uint16, r.Count(maxRecent))
	for i := range m.recent {
		m.recent[i] = uint16(r.Count(uint64(Steps)))
		m.late.learn(int(m.recent[i])) // late's memory is shorter than recent.
	}
	m.all.restore(r)
	m.day.restore(r)
}

// marshal writes the nodes that have samples below them.
func (t *tree) marshal(w *wireWriter) {
	nodes := uint64(0)
	for _, total := range t.total {
		if total > 0 {
			nodes++
		}
	}
	w.Count(nodes)
	before := 0
	for node, total := range t.total {
		if total > 0 {
			w.Count(uint64(node - before))
			w.Count(uint64(math.Round(float64(total * countScale))))
			w.Count(uint64(math.Round(float64(t.left[node] * countScale))))
			w.Number(int64(math.Round(countScale * math.Log2(float64(t.ratio[node])))))
			before = node
		}
	}
}

func (t *tree) restore(r *wireReader) {
	node := uint64(0)
	for range r.Count(leaves) {
		node += r.Count(leaves - 1)
		total := r.Count(MaxCount)
		left := r.Count(total)
		ratio := math.Exp2(float64(r.Number()) / countScale)
		if r.Failed() || node == 0 || node >= leaves {
			r.Fail()
			return
		}
		t.total[node], t.left[node] = float32(total)/countScale, float32(left)/countScale
		t.ratio[node] = float32(max(1/float64(t.limit), min(float64(t.limit), ratio)))
	}
}

func (d *forecastDay) marshal(w *wireWriter) {
	w.Number(d.number)
	for i := range d.seen {
		w.Real(float64(d.seen[i]))
		w.Real(float64(d.expected[i]))
	}
}

func (d *forecastDay) restore(r *wireReader) {
	d.number = r.Number()
	for i := range d.seen {
		d.seen[i] = float32(r.Real(MaxCount))
		d.expected[i] = float32(r.Real(MaxCount))
	}
}
