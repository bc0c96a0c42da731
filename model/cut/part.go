package cut

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/shape"
)

// Part is what one function computes of a group: the regions of all tensors that its own
// region of the output needs.
type Part struct {
	group *Group
	// steps are the operators that it runs, in order.
	steps []step
	// held are the regions that it is sent or computes. A region is nil if the part is the
	// whole group.
	held map[string]Region
	// inputs are the tensors that it is sent; outputs those that it returns, with their
	// regions.
	inputs  []string
	outputs map[string]Region
	// entire is true for the part that is the whole model. Its graph is the model's own.
	entire bool
}

// step is an operator with the region of its first output that it computes, and the
// regions of its inputs that this needs. All are nil in a part that is the whole group.
type step struct {
	operator int
	out      Region
	in       []Region
}

// Cut makes the parts of a group. The error says what of the cut is wrong: regions that
// overlap or leave gaps, or what cannot be divided so.
func (g *Group) Cut(c Cut) ([]*Part, error) {
	if c.Regions == nil {
		p, err := g.part(nil)
		return []*Part{p}, err
	}
	if err := g.check(c); err != nil {
		return nil, err
	}
	parts := make([]*Part, len(c.Regions))
	for i, r := range c.Regions {
		var err error
		if parts[i], err = g.part(r); err != nil {
			return nil, fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
		}
	}
	return parts, nil
}

// part goes backwards from a region of the output, nil for the whole group, through all
// operators that it needs.
func (g *Group) part(region Region) (*Part, error) {
	m := g.model
	p := &Part{group: g, held: make(map[string]Region), outputs: make(map[string]Region)}
	wanted := make(map[string]Region)
	for _, name := range g.outputs {
		wanted[name], p.outputs[name] = region, region
	}
	mine := make(map[int]bool, len(g.operators))
	for _, i := range g.operators {
		mine[i] = true
	}
	for i := len(m.nodes) - 1; i >= 0; i-- {
		if m.nodes[i].heavy && !mine[i] {
			continue
		}
		s, used, err := m.step(i, wanted, region == nil)
		if err != nil {
			return nil, err
		}
		if !used {
			continue
		}
		p.steps = append(p.steps, s)
		for _, v := range m.nodes[i].Outputs {
			p.held[v.Name] = s.out
			if s.out != nil && v.Name != m.nodes[i].Node.GetOutput()[0] {
				p.held[v.Name] = whole(m.values[v.Name].shape)
			}
		}
		for k, name := range m.nodes[i].Node.GetInput() {
			if v := m.values[name]; v != nil && v.weight == nil {
				wanted[name] = wanted[name].hull(s.in[k])
			}
		}
	}
	slices.Reverse(p.steps)
	if p.entire = region == nil && g.First == 0 && g.End == len(m.layers); p.entire {
		p.inputs = m.inputs
		return p, nil
	}
	for name, r := range wanted {
		if _, computed := p.held[name]; !computed {
			p.held[name] = r
			p.inputs = append(p.inputs, name)
		}
	}
	slices.Sort(p.inputs)
	return p, nil
}

// step is operator i in a part that wants the given regions; used is false if it wants none
// of the operator's outputs.
func (m *Model) step(i int, wanted map[string]Region, verbatim bool) (s step, used bool, err error) {
	o := &m.nodes[i]
	first, others := false, false
	for k, name := range o.Node.GetOutput() {
		if _, ok := wanted[name]; ok && name != "" {
			first, others = first || k == 0, others || k > 0
		}
	}
	if !first && !others {
		return s, false, nil
	}
	s = step{operator: i, in: make([]Region, len(o.Node.GetInput()))}
	if verbatim {
		return s, true, nil
	}
	for _, v := range o.Outputs {
		if !m.values[v.Name].known() {
			return s, true, fmt.Errorf("the size of %q, an output of %q (%s), is unknown", v.Name, o.Name, o.Type)
		}
	}
	v := m.values[o.Node.GetOutput()[0]]
	s.out = whole(v.shape)
	if !others {
		for d, ok := range o.links.cuttable(len(v.shape)) {
			if ok && !v.rows(d) {
				s.out[d] = wanted[v.name][d]
			}
		}
	}
	return s, true, m.need(o, &s)
}

// need finds the regions of the inputs.
func (m *Model) need(o *operator, s *step) error {
	for k, name := range o.Node.GetInput() {
		v := m.values[name]
		if v == nil {
			continue
		}
		if !v.known() {
			return fmt.Errorf("the size of %q, which %q (%s) reads, is unknown", name, o.Name, o.Type)
		}
		s.in[k] = whole(v.shape)
		for d, link := range o.links[k] {
			if v.rows(d) {
				continue
			}
			if link.Kind == Block && !link.fits(s.out) {
				return fmt.Errorf("channels %v of %q are no whole groups of %d", s.out[link.Dim], o.Name, link.Out)
			}
			span := link.need(s.out, v.shape[d])
			if span.empty() {
				return fmt.Errorf("positions %v of %q need nothing of %q but padding", s.out, o.Name, name)
			}
			if link.Kind == Window && !link.Window.fits(s.out[link.Dim], span) {
				return fmt.Errorf("positions %v of %q are one window that reaches beyond the padding; it needs the one before it", s.out[link.Dim], o.Name)
			}
			s.in[k][d] = span
		}
	}
	return nil
}

// fits reports whether a region is of whole blocks, or within one.
func (l Link) fits(out Region) bool {
	s := out[l.Dim]
	return s.From%l.Out == 0 && s.To%l.Out == 0 || s.From/l.Out == (s.To-1)/l.Out
}

// regionOf is a region, the whole tensor for nil; nil if its size is unknown.
func (m *Model) regionOf(name string, r Region) Region {
	if r == nil && m.values[name].known() {
		return whole(m.values[name].shape)
	}
	return r
}

// InputBytes and OutputBytes are the sizes of what the part is sent and returns at a batch
// size.
func (p *Part) InputBytes(batch int) int64 {
	var n int64
	for _, name := range p.inputs {
		n += p.bytes(name, p.held[name], batch)
	}
	return n
}

// OutputBytes is the size of what the part returns at a batch size.
func (p *Part) OutputBytes(batch int) int64 {
	var n int64
	for name, r := range p.outputs {
		n += p.bytes(name, r, batch)
	}
	return n
}

func (p *Part) bytes(name string, r Region, batch int) int64 {
	m := p.group.model
	if r = m.regionOf(name, r); r == nil {
		return 0
	}
	return m.values[name].bytes(r, batch)
}

// ActivationBytes is the maximum over the operators of what they hold at the same time, at a
// batch size: every tensor from its computation to its last reader, inputs and outputs
// included.
func (p *Part) ActivationBytes(batch int) int64 {
	m := p.group.model
	last := make(map[string]int)
	for k, s := range p.steps {
		for _, name := range m.nodes[s.operator].Node.GetInput() {
			last[name] = k
		}
	}
	for name := range p.outputs {
		last[name] = len(p.steps)
	}
	now := p.InputBytes(batch)
	most := now
	for k, s := range p.steps {
		o := &m.nodes[s.operator]
		for _, v := range o.Outputs {
			now += p.bytes(v.Name, p.held[v.Name], batch)
		}
		most = max(most, now)
		for name, end := range last {
			if end == k {
				if v := m.values[name]; v != nil && v.weight == nil {
					now -= p.bytes(name, p.held[name], batch)
				}
				delete(last, name)
			}
		}
	}
	return most
}

// Work is one operator of a part with what it computes.
type Work struct {
	// Name and Type are the operator's.
	Name, Type string
	// FLOPs are its multiply-adds, counted as [model.Operator] does; 0 if unknown.
	FLOPs int64
	// In is the size of its largest input that is no weight, in elements; Weights is the
	// size of its weights in elements.
	In, Weights int64
}

// Work is what the part computes at a batch size, operator by operator.
func (p *Part) Work(batch int) []Work {
	all := make([]Work, len(p.steps))
	for k, s := range p.steps {
		all[k] = p.group.model.work(s, batch)
	}
	return all
}

// work is what an operator computes of its region at a batch size.
func (m *Model) work(s step, batch int) Work {
	o := &m.nodes[s.operator]
	w := Work{Name: o.Name, Type: o.Type}
	inputs := make([]shape.Value, len(s.in))
	for i, name := range o.Node.GetInput() {
		v := m.values[name]
		if v == nil || !v.known() {
			continue
		}
		inputs[i] = shape.Value{Shape: v.at(m.regionOf(name, s.in[i]), batch)}
		if v.weight == nil {
			w.In = max(w.In, inputs[i].Elements())
		} else {
			w.Weights += inputs[i].Elements()
		}
	}
	outputs := make([]shape.Value, len(o.Outputs))
	for i, v := range o.Outputs {
		out := m.values[v.Name]
		if !out.known() {
			continue
		}
		r := s.out
		if r == nil || v.Name != o.Node.GetOutput()[0] {
			r = whole(out.shape)
		}
		outputs[i].Shape = out.at(r, batch)
	}
	w.FLOPs = max(0, shape.Cost(o.Node, inputs, outputs))
	return w
}

// FLOPs is the sum of the part's multiply-adds at a batch size.
func (p *Part) FLOPs(batch int) int64 {
	var n int64
	for _, w := range p.Work(batch) {
		n += w.FLOPs
	}
	return n
}

// weightUse is a region of an initialiser. An initialiser that two operators read in
// different regions is held twice.
type weightUse struct {
	name   string
	region Region // nil: whole
}

// weights are the part's weights in the order in which its operators read them.
func (p *Part) weights() []weightUse {
	m := p.group.model
	if p.entire {
		return m.allWeights()
	}
	var uses []weightUse
	for _, s := range p.steps {
		for k, name := range m.nodes[s.operator].Node.GetInput() {
			v := m.values[name]
			if v == nil || v.weight == nil {
				continue
			}
			use := weightUse{name, s.in[k]}
			if use.region.equal(whole(v.shape)) {
				use.region = nil
			}
			if !slices.ContainsFunc(uses, func(u weightUse) bool { return u.name == name && u.region.equal(use.region) }) {
				uses = append(uses, use)
			}
		}
	}
	return uses
}

// allWeights are all of the model's.
func (m *Model) allWeights() (uses []weightUse) {
	for _, t := range m.source.Proto().GetGraph().GetInitializer() {
		uses = append(uses, weightUse{name: t.GetName()})
	}
	return uses
}

// WeightBytes is the size of the part's weights.
func (p *Part) WeightBytes() int64 {
	var n int64
	for _, u := range p.weights() {
		v := p.group.model.values[u.name]
		n += v.bytes(p.group.model.regionOf(u.name, u.region), reference)
	}
	return n
}
