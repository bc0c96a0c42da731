// Package shadow decides which layers of a model a shadow holds, and how a batch's rows are
// split between a body and its shadows (AsyFunc, SoCC 2023, §2.3 and §4.3). A body is an
// instance with the whole model. A shadow is one with a set Φ of blocks. It knows times and
// sizes only: package shadow/graph lists the blocks of a model's graph, and instances run
// them.
//
// The package is pure. Begin with [Model]; [Choose] is our choice by cost and [Greedy] the
// paper's Algorithm 2. A twin, an instance of the whole model beside the body, is the Φ of all
// blocks, so it is on the same scale.
package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// UndividedError says that a model has fewer than two blocks, so a shadow could hold no part of it.
type UndividedError struct {
	// Why is the reason; "" means that the model has no place to cut it.
	Why string
}

// Error implements error.
func (e *UndividedError) Error() string { return "the model cannot be divided: " + e.Reason() }

// Reason is Why, in words if it is "".
func (e *UndividedError) Reason() string {
	return cmp.Or(e.Why, "nowhere do a few tensors hold all that the rest of it needs")
}

// Block is consecutive operators of a model between two cuts.
type Block struct {
	// Name is that of the operator that computes most.
	Name string `json:"name"`
	// MACs are multiply-adds for each row.
	MACs int64 `json:"macs"`
	// Weights is their size in bytes.
	Weights int64 `json:"weights"`
	// Activations is the size in bytes, for each row, of the most tensors that are alive at
	// the same time.
	Activations int64 `json:"activations"`
	// In and Out are the sizes in bytes, for each row, of what a run of blocks that begins
	// here is sent, and of what a run that ends here returns. [Model.Tensors] says it more
	// exactly.
	In  int64 `json:"in"`
	Out int64 `json:"out"`
	// Load is the time in ms that the block adds to the loading of a part into an empty instance.
	Load float64 `json:"load_ms"`
	// Ms is the time in ms by threads and rows: Ms[i][j] is that with Model.Threads[i]
	// threads and Model.Rows[j] rows.
	Ms [][]float64 `json:"ms"`
}

// Tensor is a tensor that is alive between blocks.
type Tensor struct {
	Name string `json:"name"`
	// Bytes is its size for each row.
	Bytes int64 `json:"bytes"`
	// From is the block that computes it, -1 for an input of the model. Readers are the
	// blocks that read it, ascending. An output of the model has the number of blocks as its
	// last reader.
	From    int   `json:"from"`
	Readers []int `json:"readers"`
}

// Model is a model as a sequence of blocks.
type Model struct {
	Name   string  `json:"name"`
	Blocks []Block `json:"blocks"`
	// Rows and Threads are those that the blocks' times are of, ascending, from 1 on.
	// Between two numbers of rows times lie on a line; above the last they grow in
	// proportion.
	Rows    []int `json:"rows"`
	Threads []int `json:"threads"`
	// Tensors are those alive between blocks. Without any, In and Out of the blocks count.
	Tensors []Tensor `json:"tensors,omitempty"`
	// Call is the fixed time in ms to execute a part, whatever is in it, Open that to load one.
	Call float64 `json:"call_ms"`
	Open float64 `json:"open_ms,omitempty"`
	// Own is the memory in bytes of an instance without a model: the process and its engine.
	Own int64 `json:"own"`
}

// Run is consecutive blocks: First and all up to, but without, End.
type Run struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// Phi is a set of blocks (the paper's Φ) as runs, ascending, with a block between each two.
// Each run is one crossing: tensors go to the shadow and back.
type Phi []Run

// String is "[0,18) [20,22)".
func (p Phi) String() string {
	texts := make([]string, len(p))
	for i, r := range p {
		texts[i] = fmt.Sprintf("[%d,%d)", r.First, r.End)
	}
	return strings.Join(texts, " ")
}

// Of are the runs of the blocks for which in holds true.
func Of(in []bool) Phi {
	var p Phi
	for i, held := range in {
		switch {
		case held && i > 0 && in[i-1]:
			p[len(p)-1].End = i + 1
		case held:
			p = append(p, Run{i, i + 1})
		}
	}
	return p
}

// All is the Φ of all blocks: the shadow is then a twin of the body, which the dispatcher
// sends whole requests, so nothing crosses.
func (m *Model) All() Phi { return Phi{{0, len(m.Blocks)}} }

// IsAll reports whether p is [Model.All].
func (m *Model) IsAll(p Phi) bool { return len(p) == 1 && p[0] == Run{0, len(m.Blocks)} }

// blocks are those of Φ.
func (m *Model) blocks(p Phi) iter.Seq[*Block] {
	return func(yield func(*Block) bool) {
		for _, r := range p {
			for i := r.First; i < r.End; i++ {
				if !yield(&m.Blocks[i]) {
					return
				}
			}
		}
	}
}

// Weights is the size in bytes of Φ's weights, each block's once.
func (m *Model) Weights(p Phi) (n int64) {
	for b := range m.blocks(p) {
		n += b.Weights
	}
	return n
}

// Activations is the maximum size in bytes of Φ's activations for each row: its runs are
// computed one after another.
func (m *Model) Activations(p Phi) (n int64) {
	for b := range m.blocks(p) {
		n = max(n, b.Activations)
	}
	return n
}

// MACs are Φ's multiply-adds for each row.
func (m *Model) MACs(p Phi) (n int64) {
	for b := range m.blocks(p) {
		n += b.MACs
	}
	return n
}

// Load is the time to load Φ in ms, each run as a part.
func (m *Model) Load(p Phi) (ms float64) {
	ms = m.Open * float64(len(p))
	for b := range m.blocks(p) {
		ms += b.Load
	}
	return ms
}

// Crossing is what a run is sent and what it returns in bytes for each row.
func (m *Model) Crossing(r Run) (in, out int64) {
	if len(m.Tensors) == 0 {
		return m.Blocks[r.First].In, m.Blocks[r.End-1].Out
	}
	for _, t := range m.Tensors {
		if t.From < r.First && slices.ContainsFunc(t.Readers, func(i int) bool { return i >= r.First && i < r.End }) {
			in += t.Bytes
		}
		if t.From >= r.First && t.From < r.End && len(t.Readers) > 0 && t.Readers[len(t.Readers)-1] >= r.End {
			out += t.Bytes
		}
	}
	return in, out
}

// Check returns an error that names the first field that is wrong.
func (m *Model) Check() error {
	if len(m.Blocks) == 0 {
		return errors.New("blocks is empty: a model has at least one")
	}
	for name, list := range map[string][]int{"rows": m.Rows, "threads": m.Threads} {
		if len(list) == 0 || list[0] != 1 || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			return fmt.Errorf("%s is %v: it must ascend from 1", name, list)
		}
	}
	if !(m.Call >= 0) || !(m.Open >= 0) || m.Own < 0 {
		return fmt.Errorf("call_ms is %g, open_ms is %g and own is %d: none may be negative", m.Call, m.Open, m.Own)
	}
	for i, b := range m.Blocks {
		if err := b.check(len(m.Threads), len(m.Rows)); err != nil {
			return fmt.Errorf("blocks[%d]: %w", i, err)
		}
	}
	for i, t := range m.Tensors {
		if t.Bytes < 0 || t.From < -1 || t.From >= len(m.Blocks) || !slices.IsSorted(t.Readers) ||
			len(t.Readers) > 0 && (t.Readers[0] <= t.From || t.Readers[len(t.Readers)-1] > len(m.Blocks)) {
			return fmt.Errorf("tensors[%d]: %+v is not read by ascending blocks after the one that computes it", i, t)
		}
	}
	return nil
}

func (b *Block) check(threads, rows int) error {
	for name, n := range map[string]int64{"macs": b.MACs, "weights": b.Weights, "activations": b.Activations, "in": b.In, "out": b.Out} {
		if n < 0 {
			return fmt.Errorf("%s is %d: it must not be negative", name, n)
		}
	}
	if !(b.Load >= 0) {
		return fmt.Errorf("load_ms is %g: it must not be negative", b.Load)
	}
	if len(b.Ms) != threads {
		return fmt.Errorf("ms has %d rows: the model has %d numbers of threads", len(b.Ms), threads)
	}
	for _, ms := range b.Ms {
		if len(ms) != rows {
			return fmt.Errorf("ms has %d columns: the model has %d numbers of rows", len(ms), rows)
		}
		for _, t := range ms {
			if !(t >= 0) || t > 1e12 {
				return fmt.Errorf("ms has %g: a time must not be negative", t)
			}
		}
	}
	return nil
}

// CheckPhi returns an error unless the runs are of the model, ascending, with a block between
// each two.
func (m *Model) CheckPhi(p Phi) error {
	end := -1
	for _, r := range p {
		if r.First <= end || r.First >= r.End || r.End > len(m.Blocks) {
			return fmt.Errorf("phi is %v: its runs must ascend with a block between each two, among blocks 0 to %d", p, len(m.Blocks)-1)
		}
		end = r.End
	}
	return nil
}

// Time is the time in ms to execute the blocks from first up to, but without, end as one part
// with rows rows on a share of millicores, as the mean under its quota.
func (m *Model) Time(first, end, rows, millicores int) float64 {
	if rows == 0 || first >= end {
		return 0
	}
	v := m.on(millicores)
	ms := m.Call
	for i := first; i < end; i++ {
		ms += m.at(i, v.threads, rows)
	}
	return ms * v.slower
}

// share is a share of cores: the index of its number of threads, and how many times longer
// everything takes under its quota.
type share struct {
	threads int
	slower  float64
}

// on finds the threads of a share: one for each core or part of one, as instances have them.
// All threads are taken to be busy all the time, so 1500 millicores of two threads take
// 2000/1500 times as long.
func (m *Model) on(millicores int) share {
	wanted := max(1, (millicores+999)/1000)
	s := share{slower: 1}
	for i, n := range m.Threads {
		if n <= wanted {
			s.threads = i
		}
	}
	if n := m.Threads[s.threads]; millicores > 0 && millicores < 1000*n {
		s.slower = float64(1000*n) / float64(millicores)
	}
	return s
}

// at is block i's time in ms without a quota.
func (m *Model) at(i, threads, rows int) float64 {
	ms := m.Blocks[i].Ms[threads]
	k, exact := slices.BinarySearch(m.Rows, rows)
	last := len(m.Rows) - 1
	switch {
	case exact:
		return ms[k]
	case k > last:
		return ms[last] * float64(rows) / float64(m.Rows[last])
	}
	low, high := m.Rows[k-1], m.Rows[k]
	return ms[k-1] + (ms[k]-ms[k-1])*float64(rows-low)/float64(high-low)
}
