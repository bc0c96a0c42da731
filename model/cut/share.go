package cut

import "slices"

// Share is what a part computes of one layer, if the group that it is a part of begins with
// this layer or before it.
type Share struct {
	// Layer is the layer.
	Layer int
	// Work is what it computes of the layer at the batch size, in order.
	Work []Work
	// Weights is the size in bytes of the weights that the layer adds; Activations that of
	// the most tensors that are alive at the same time while it computes the layer.
	Weights, Activations int64
	// In is the size in bytes of what the part is sent if the group begins with this layer.
	In int64
	// Local is false if the part computes the whole of a tensor within the layer, though it
	// is not the whole group: it then does the work of all parts (Gillis §III-C).
	Local bool
}

// Shares goes backwards from a region of what the layers up to, but without, end compute, nil
// for all of it, and yields the share of each layer, the last layer's first. So what a part of
// any group that ends there computes is the sum of its layers' shares: no layer's share
// depends on how many are before it. It ends early with the error of [Group.Cut].
//
// The work of operators that only prepare the model's inputs is left out.
func (m *Model) Shares(end int, region Region, batch int, yield func(Share) bool) error {
	g, err := m.Group(end-1, end)
	if err != nil {
		return err
	}
	w := walk{model: m, batch: batch, wanted: make(map[string]Region), live: make(map[string]int64), seen: make(map[weightKey]bool)}
	for _, name := range g.outputs {
		w.want(name, region)
	}
	for _, name := range m.layers[end-1].Out { // Earlier layers compute those that are no outputs.
		w.want(name, region)
	}
	for layer := end - 1; layer >= 0; layer-- {
		s := Share{Layer: layer, Local: true}
		operators := m.layers[layer].Operators
		for k := len(operators) - 1; k >= 0; k-- {
			st, used, err := m.step(operators[k], w.wanted, region == nil)
			if err != nil {
				return err
			}
			if used {
				w.share(&s, st)
			}
		}
		slices.Reverse(s.Work)
		s.In = m.sent(layer, w.wanted, batch)
		if m.opaque != "" { // Its operators may read weights that they do not name.
			s.Weights = 0
			for _, u := range m.allWeights() {
				v := m.values[u.name]
				s.Weights += v.bytes(m.regionOf(u.name, nil), reference)
			}
		}
		if !yield(s) {
			return nil
		}
	}
	return nil
}

// weightKey is a region of a weight, as a key.
type weightKey struct{ name, region string }

// walk goes backwards through a model's operators.
type walk struct {
	model  *Model
	batch  int
	wanted map[string]Region
	// live are the sizes of the tensors that later operators read and no later one computes;
	// held is their sum.
	live map[string]int64
	held int64
	// seen are the weights that are counted.
	seen map[weightKey]bool
}

// want adds a region to what is wanted of a tensor.
func (w *walk) want(name string, r Region) {
	w.wanted[name] = w.wanted[name].hull(r)
	w.alive(name, w.wanted[name])
}

// alive says that a region of a tensor is alive.
func (w *walk) alive(name string, r Region) {
	v, size := w.model.values[name], int64(0)
	if r = w.model.regionOf(name, r); r != nil {
		size = v.bytes(r, w.batch)
	}
	w.held += size - w.live[name]
	w.live[name] = size
}

// share adds an operator to a layer's share.
func (w *walk) share(s *Share, st step) {
	m := w.model
	o := &m.nodes[st.operator]
	work := m.work(st, w.batch)
	s.Work = append(s.Work, work)
	for _, out := range o.Outputs {
		v := m.values[out.Name]
		if !v.known() {
			continue
		}
		r := st.out
		if r == nil || out.Name != o.Node.GetOutput()[0] {
			r = whole(v.shape)
		}
		w.alive(out.Name, r)
		if st.out != nil && work.FLOPs > 0 && r.equal(whole(v.shape)) {
			s.Local = false
		}
	}
	for k, name := range o.Node.GetInput() {
		v := m.values[name]
		if v == nil {
			continue
		}
		if v.weight == nil {
			w.want(name, st.in[k])
			continue
		}
		r := m.regionOf(name, st.in[k])
		if key := (weightKey{name, r.String()}); !w.seen[key] {
			w.seen[key] = true
			s.Weights += v.bytes(r, reference)
		}
	}
	s.Activations = max(s.Activations, w.held)
	for _, out := range o.Outputs {
		w.held -= w.live[out.Name]
		delete(w.live, out.Name)
	}
}

// sent is the size of what a group that begins with a layer is sent.
func (m *Model) sent(layer int, wanted map[string]Region, batch int) int64 {
	names := m.inputs
	if layer > 0 {
		names = slices.Concat(m.layers[layer-1].Out, names)
	}
	n := int64(0)
	for _, name := range names {
		r, ok := wanted[name]
		if r = m.regionOf(name, r); ok && r != nil {
			n += m.values[name].bytes(r, batch)
		}
	}
	return n
}
