package operator

// lifetime is a tensor that is computed or sent, and the first and the last node that
// need it in memory. from is -1 for a tensor that is there before the first node.
type lifetime struct {
	operand  Operand
	from, to int
}

// born records that a node computes a tensor.
func (r *reading) born(name string, o Operand, node int) {
	r.tensor[name] = len(r.graph.tensors)
	r.graph.tensors = append(r.graph.tensors, lifetime{o, node, node})
}

// read records that a node reads a tensor.
func (r *reading) read(name string, node int) {
	if at, ok := r.tensor[name]; ok {
		r.graph.tensors[at].to = node
	}
}

// keep extends the lifetimes of the model's inputs and outputs to the end of the run,
// because the caller holds them.
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

// weigh adds the size of a constant, once.
func (r *reading) weigh(name string, o Operand) {
	if !r.weights[name] {
		r.weights[name] = true
		r.graph.weightBytes += o.Bytes(0)
	}
}

// WeightBytes is the size of all constants, each counted once.
func (g *Graph) WeightBytes() int64 { return g.weightBytes }

// ActivationBytes is the peak size in bytes of the computed tensors and of the model's
// inputs and outputs. Nodes run one after another, and a tensor is freed after its last
// reader. Memory that an engine's allocator keeps does not count.
func (g *Graph) ActivationBytes(batch int) int64 {
	change := make([]int64, len(g.Nodes)+3) // Index 0 is before the first node.
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
