package cut

// Share is what a part computes of one layer, if the group that it is a part of begins with
// this layer or before it.
type Share struct {
	// Layer is the layer.
	Layer int
	// Work is what it computes of the layer at the batch size, in order.
	Work []Work
	// Weights is the size in bytes of the weights that the layer adds; Activations that of
	// the most that an operator of the layer reads and computes.
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
	wanted := make(map[string]Region)
	for _, name := range g.outputs {
		wanted[name] = region
	}
	seen := make(map[weightKey]bool)
	for layer := end - 1; layer >= 0; layer-- {
		s := Share{Layer: layer, Local: true}
		operators := m.layers[layer].Operators
		for k := len(operators) - 1; k >= 0; k-- {
			st, used, err := m.step(operators[k], wanted, region == nil)
			if err != nil {
				return err
			}
			if used {
				m.share(&s, st, batch, wanted, seen)
			}
		}
		for i, j := 0, len(s.Work)-1; i < j; i, j = i+1, j-1 {
			s.Work[i], s.Work[j] = s.Work[j], s.Work[i]
		}
		s.In = m.sent(layer, wanted, batch)
		if !yield(s) {
			return nil
		}
	}
	return nil
}

// weightKey is a region of a weight, as a key.
type weightKey struct{ name, region string }

// share adds an operator to a layer's share.
func (m *Model) share(s *Share, st step, batch int, wanted map[string]Region, seen map[weightKey]bool) {
	o := &m.nodes[st.operator]
	w := m.work(st, batch)
	s.Work = append(s.Work, w)
	held := int64(0)
	for _, v := range o.Outputs {
		if out := m.values[v.Name]; out.known() {
			r := st.out
			if r == nil || v.Name != o.Node.GetOutput()[0] {
				r = whole(out.shape)
			}
			held += out.bytes(r, batch)
			if st.out != nil && w.FLOPs > 0 && r.equal(whole(out.shape)) {
				s.Local = false
			}
		}
	}
	for k, name := range o.Node.GetInput() {
		v := m.values[name]
		if v == nil {
			continue
		}
		if v.weight == nil {
			wanted[name] = wanted[name].hull(st.in[k])
		}
		r := m.regionOf(name, st.in[k])
		switch {
		case r == nil:
		case v.weight == nil:
			held += v.bytes(r, batch)
		default:
			if key := (weightKey{name, r.String()}); !seen[key] {
				seen[key] = true
				s.Weights += v.bytes(r, reference)
			}
		}
	}
	s.Activations = max(s.Activations, held)
}

// sent is the size of what a group that begins with a layer is sent.
func (m *Model) sent(layer int, wanted map[string]Region, batch int) int64 {
	names := m.inputs
	if layer > 0 {
		names = append([]string{m.layers[layer-1].Out}, names...)
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
