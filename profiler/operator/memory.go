package operator

// lifetime is a tensor that is computed or sent, and the nodes between which it
// is needed; -1 is before the first.
type lifetime struct {
	operand  Operand
	from, to int
}

// born notes that a node computes a tensor.
func (r *reading) born(name string, o Operand, node int) {
	r.tensor[name] = len(r.graph.tensors)
	r.graph.tensors = append(r.graph.tensors, lifetime{o, node, node})
}

// read notes that a node reads a tensor.
func (r *reading) read(name string, node int) {
	if at, ok := r.tensor[name]; ok {
		r.graph.tensors[at].to = node
	}
}

// keep notes that the caller has the inputs and gets the outputs.
func (r *reading) keep() {
	end := len(r.graph.Nodes)
	for i := range r.graph.tensors {
		if r.graph.tensors[i].from < 0 {
			r.graph.tensors[i].to = end
		}
	}
	for name := range r.outputs {
		r.read(name, end)
	}
}

// weigh counts a constant once.
func (r *reading) weigh(name string, o Operand) {
	if !r.weights[name] {
		r.weights[name] = true
		r.graph.weightBytes += o.Bytes(0)
	}
}

// WeightBytes is the size of all constants, each counted once.
func (g *Graph) WeightBytes() int64 { return g.weightBytes }

// ActivationBytes is the most that is needed at once of what is computed, the
// model's inputs and outputs with it, where the nodes run one after another and
// a tensor is freed after its last reader: the peak, without what an engine's
// allocator keeps.
func (g *Graph) ActivationBytes(batch int) int64 {
	change := make([]int64, len(g.Nodes)+3) // from before the first node to after the last
	for _, t := range g.tensors {
		bytes := t.operand.Bytes(batch)
		change[t.from+1] += bytes
		change[t.to+2] -= bytes
	}
	now, peak := int64(0), int64(0)
	for _, c := range change {
		now += c
		peak = max(peak, now)
	}
	return peak
}
