package shadow

import (
	"fmt"
	"math"
)

// Accounting says whose memory the weights are.
type Accounting string

const (
	// Own: each instance has weights of its own, as in the paper and on another node.
	Own Accounting = "own"
	// Shared: the instances of a node map the same weights, so those of a shadow or a twin
	// cost nothing beside their body's.
	Shared Accounting = "shared"
)

// Transfer is the time for tensors to go one way between a body and a shadow.
type Transfer struct {
	// Fixed is the time in ms of a message of any size, PerMiB that of a MiB.
	Fixed  float64 `json:"fixed_ms"`
	PerMiB float64 `json:"ms_per_mib"`
}

// bytes is the time of that many bytes in ms.
func (t Transfer) bytes(n int64) float64 { return t.PerMiB * float64(n) / (1 << 20) }

// Options say what a pair is made of and what it must reach.
type Options struct {
	// Body and Shadow are the shares in millicores.
	Body   int `json:"body"`
	Shadow int `json:"shadow"`
	// Shadows is the maximum number of shadows of one body; 0 is one, as in the paper.
	Shadows int `json:"shadows"`
	// MaxRows is the largest batch of a pair (B_max); 0 is 8. MinRows is the smallest that counts
	// for the best one; 0 is 1.
	MaxRows int `json:"max_rows"`
	MinRows int `json:"min_rows,omitempty"`
	// ShadowRows is the maximum number of a batch's rows on one shadow; 0 is MaxRows. It bounds a
	// shadow's activations, and what Φ must hold so that a pair is as fast as two whole
	// instances: with 4 of 6 rows, three quarters of the work (6·¼ + 2·¾ = 4·¾ = 3 rows' time).
	ShadowRows int `json:"shadow_rows,omitempty"`
	// SLO bounds the time from a batch's start to its end in ms; 0 is no bound.
	SLO float64 `json:"slo_ms"`
	// Rho is the price ρ of a GiB in cores.
	Rho float64 `json:"cores_per_gib"`
	// Transfer is the way between body and shadow.
	Transfer Transfer `json:"transfer"`
	// Memory is the accounting; "" is Own.
	Memory Accounting `json:"memory"`
	// Synchronous: the shadow waits while the body runs its own layers (Eq. 6). Otherwise
	// it begins the next batch.
	Synchronous bool `json:"synchronous"`
	// Runs is the maximum number of runs of Φ, up to three; 0 is three.
	Runs int `json:"runs"`
	// Partial leaves out the Φ of all blocks, which is a twin.
	Partial bool `json:"partial"`
	// Reach, if it is not 0, makes [Choose] take the least memory of a shadow instead of the
	// least cost: among the pairs with that part of the requests per second of the same body
	// with as many twins.
	Reach float64 `json:"reach,omitempty"`
}

// maxRuns is the maximum number of runs, maxBatch that of rows of a batch.
const (
	maxRuns  = 3
	maxBatch = 4096
)

// defaults fills in what is 0. The error names the field.
func (o Options) defaults() (Options, error) {
	if o.Shadows == 0 {
		o.Shadows = 1
	}
	if o.MaxRows == 0 {
		o.MaxRows = 8
	}
	if o.MinRows == 0 {
		o.MinRows = 1
	}
	if o.ShadowRows == 0 {
		o.ShadowRows = o.MaxRows
	}
	if o.Runs == 0 {
		o.Runs = maxRuns
	}
	if o.Memory == "" {
		o.Memory = Own
	}
	switch {
	case o.Body < 1 || o.Shadow < 1:
		return o, fmt.Errorf("body is %d and shadow is %d millicores: both must be at least 1", o.Body, o.Shadow)
	case o.Shadows < 1 || o.Shadows > 64:
		return o, fmt.Errorf("shadows is %d: it must be from 1 to 64", o.Shadows)
	case o.MaxRows < 1 || o.MaxRows > maxBatch:
		return o, fmt.Errorf("max_rows is %d: it must be from 1 to %d", o.MaxRows, maxBatch)
	case o.MinRows < 1 || o.MinRows > o.MaxRows:
		return o, fmt.Errorf("min_rows is %d: it must be from 1 to max_rows, which is %d", o.MinRows, o.MaxRows)
	case o.ShadowRows < 1:
		return o, fmt.Errorf("shadow_rows is %d: it must be at least 1", o.ShadowRows)
	case o.Runs < 1 || o.Runs > maxRuns:
		return o, fmt.Errorf("runs is %d: it must be from 1 to %d", o.Runs, maxRuns)
	case !(o.Reach >= 0 && o.Reach <= 1):
		return o, fmt.Errorf("reach is %g: it must be from 0 to 1", o.Reach)
	case !(o.SLO >= 0) || !(o.Rho >= 0) || !(o.Transfer.Fixed >= 0) || !(o.Transfer.PerMiB >= 0):
		return o, fmt.Errorf("slo_ms is %g, cores_per_gib is %g, transfer is %+v: none may be negative", o.SLO, o.Rho, o.Transfer)
	case o.Memory != Own && o.Memory != Shared:
		return o, fmt.Errorf("memory is %q: it must be %q or %q", o.Memory, Own, Shared)
	}
	return o, nil
}

// Split says who computes a batch's rows within Φ. The body computes all rows of the other
// blocks.
type Split struct {
	// Rows are the batch's. Body and all of Shadows add up to it.
	Rows    int   `json:"rows"`
	Body    int   `json:"body"`
	Shadows []int `json:"shadows"`
	// Period is the time between the ends of two batches in ms if there are always more,
	// Latency that from a batch's start to its end.
	Period  float64 `json:"period_ms"`
	Latency float64 `json:"latency_ms"`
	// Waits is true if the next batch begins when this one has ended. Period and Latency are
	// then equal.
	Waits bool `json:"waits,omitempty"`
}

// sent is the number of rows that the shadows compute.
func (s Split) sent() int { return s.Rows - s.Body }

// Pair is a body with its shadows.
type Pair struct {
	Phi     Phi `json:"phi"`
	Shadows int `json:"shadows"`
	// Best is the split with the most requests per second within the SLO; Splits[b-1] is the
	// one of a batch of b rows. A batch that is not faster with the shadows is the body's
	// alone.
	Best   Split   `json:"best"`
	Splits []Split `json:"splits"`
	// PerSecond are requests per second at Best.
	PerSecond float64 `json:"requests_per_second"`
	// Load is the time to load Φ in ms.
	Load float64 `json:"load_ms"`
	// Memory is what one shadow takes in bytes at Best, by the accounting. Weights and
	// Activations are those of Φ, Activations with the rows of a shadow.
	Memory      int64 `json:"memory"`
	Weights     int64 `json:"weights"`
	Activations int64 `json:"activations"`
	// BodyMemory is that of the body at Best.
	BodyMemory int64 `json:"body_memory"`
	// Cost is the price of a request in core-milliseconds: cores and ρ·GiB of body and
	// shadows, for the time that a request takes of them.
	Cost float64 `json:"cost"`
	// Within is false if no batch is within the SLO. Best is then the fastest one.
	Within bool `json:"within_slo"`
}

// pipelineDepth is the number of batches that a pipelined pair executes at the same time.
const pipelineDepth = 2

// Streams are how a pair executes: so many batches at the same time, and the time in ms of each
// batch size, from 1 to that of the largest split. A pipelined pair begins a batch each period, so
// with two at a time each takes two periods, or its latency if that is longer. A batch takes no
// longer than a larger one.
func (p *Pair) Streams() (streams int, times []float64) {
	streams = 1
	if !p.Best.Waits && p.Best.Latency > p.Best.Period {
		streams = pipelineDepth
	}
	times = make([]float64, len(p.Splits))
	for b := range times {
		times[b] = max(p.Splits[b].Latency, float64(streams)*p.Splits[b].Period)
	}
	for b := len(times) - 2; b >= 0; b-- {
		times[b] = min(times[b], times[b+1])
	}
	return streams, times
}

// Pair evaluates a Φ with n shadows. It splits each batch's rows so that the period is the
// least within the SLO. The error names a field that is wrong.
func (m *Model) Pair(phi Phi, n int, o Options) (Pair, error) {
	o, err := o.defaults()
	if err != nil {
		return Pair{}, err
	}
	if err := m.Check(); err != nil {
		return Pair{}, err
	}
	if err := m.CheckPhi(phi); err != nil {
		return Pair{}, err
	}
	if n < 0 || n > 0 && len(phi) == 0 {
		return Pair{}, fmt.Errorf("shadows is %d with the blocks %q: shadows need blocks", n, phi)
	}
	o.Shadows = max(o.Shadows, n)
	return newEvaluation(m, o).pair(phi, n), nil
}

// Alone is a body without shadows, on the same scale.
func (m *Model) Alone(o Options) (Pair, error) { return m.Pair(nil, 0, o) }

// evaluation holds a model's times for one set of options, as sums over the first blocks: all
// evaluations of a run are then differences.
type evaluation struct {
	*Model
	options Options
	// body[b][i] is the body's time in ms of the blocks before i with b rows, shadow that of
	// a shadow.
	body, shadow [][]float64
	// call is the fixed time of the body's and of a shadow's executions in ms.
	call [2]float64
	// weights[i] and load[i] are sums over the blocks before i.
	weights []int64
	load    []float64
	// in and out are by first*(blocks+1)+end.
	in, out     []int64
	activations []int64
	// least are the requests per ms that [Options.Reach] asks for, by the number of shadows.
	least []float64
}

func newEvaluation(m *Model, o Options) *evaluation {
	e := &evaluation{Model: m, options: o}
	body, shadow := m.on(o.Body), m.on(o.Shadow)
	e.body, e.shadow = e.sums(body), e.sums(shadow)
	e.call = [2]float64{m.Call * body.slower, m.Call * shadow.slower}
	n := len(m.Blocks)
	e.weights, e.load = make([]int64, n+1), make([]float64, n+1)
	for i, b := range m.Blocks {
		e.weights[i+1], e.load[i+1] = e.weights[i]+b.Weights, e.load[i]+b.Load
	}
	e.cross()
	e.reach()
	return e
}

// sums are the times of the first blocks by rows.
func (e *evaluation) sums(s share) [][]float64 {
	out := make([][]float64, e.options.MaxRows+1)
	for b := range out {
		out[b] = make([]float64, len(e.Blocks)+1)
		for i := range e.Blocks {
			ms := 0.0
			if b > 0 {
				ms = e.at(i, s.threads, b) * s.slower
			}
			out[b][i+1] = out[b][i] + ms
		}
	}
	return out
}

// cross lists what each run is sent, returns and holds.
func (e *evaluation) cross() {
	n := len(e.Blocks)
	size := (n + 1) * (n + 1)
	e.in, e.out, e.activations = make([]int64, size), make([]int64, size), make([]int64, size)
	for first := range n {
		most := int64(0)
		for end := first + 1; end <= n; end++ {
			k := first*(n+1) + end
			most = max(most, e.Blocks[end-1].Activations)
			e.activations[k] = most
			if len(e.Tensors) == 0 {
				e.in[k], e.out[k] = e.Blocks[first].In, e.Blocks[end-1].Out
			}
		}
	}
	for _, t := range e.Tensors {
		e.crossOf(t)
	}
}

// crossOf adds a tensor to the runs that are sent it and to those that return it.
func (e *evaluation) crossOf(t Tensor) {
	n := len(e.Blocks)
	if len(t.Readers) == 0 {
		return
	}
	last := t.Readers[len(t.Readers)-1]
	next := 0
	for first := t.From + 1; first < n; first++ { // Runs that read it and do not compute it.
		for next < len(t.Readers) && t.Readers[next] < first {
			next++
		}
		if next == len(t.Readers) {
			break
		}
		for end := t.Readers[next] + 1; end <= n; end++ {
			e.in[first*(n+1)+end] += t.Bytes
		}
	}
	for first := 0; first <= t.From; first++ { // Runs that compute it and end before its last reader.
		for end := t.From + 1; end <= min(last, n); end++ {
			e.out[first*(n+1)+end] += t.Bytes
		}
	}
}

// key is the index of a run.
func (e *evaluation) key(r Run) int { return r.First*(len(e.Blocks)+1) + r.End }

// parts are the times of a batch's parts in ms, without waiting.
type parts struct {
	// own is the body's time outside Φ for all rows.
	own float64
	// body and shadow are the times within Φ: of the body with its rows and the copies it
	// makes, and of the shadow with most rows, with the crossings.
	body, shadow float64
	// both is the sum over the runs of the longer of the two, turns that of the longer of the shadow's
	// run and of the body's with its own layers up to the next run.
	both, turns float64
	// late is true if the shadow is the longer one in some run.
	late bool
	runs int
}

// parts are the times with sent of a batch's rows on n shadows.
func (e *evaluation) parts(phi Phi, rows, sent, n int) parts {
	all := Run{0, len(e.Blocks)}
	if sent == 0 || n == 0 {
		return parts{own: e.body[rows][all.End] + e.call[0]}
	}
	left, most := rows-sent, (sent+n-1)/n
	if len(phi) == 1 && phi[0] == all {
		return e.twins(left, most)
	}
	p := parts{runs: len(phi), own: e.body[rows][all.End]}
	segments := 0
	end := 0
	for i, r := range phi {
		if r.First > end {
			segments++
		}
		end = r.End
		k := e.key(r)
		p.own -= e.body[rows][r.End] - e.body[rows][r.First]
		copies := e.options.Transfer.bytes((e.in[k] + e.out[k]) * int64(sent))
		body, shadow := copies, e.call[1]+e.shadow[most][r.End]-e.shadow[most][r.First]+2*e.options.Transfer.Fixed+copies
		if left > 0 {
			body += e.call[0] + e.body[left][r.End] - e.body[left][r.First]
		}
		p.body, p.shadow, p.both = p.body+body, p.shadow+shadow, p.both+max(body, shadow)
		p.turns += max(shadow, body+e.after(phi, i, rows))
		p.late = p.late || shadow > body
	}
	if end < all.End {
		segments++
	}
	p.own += float64(segments) * e.call[0]
	return p
}

// after is the time of the body's own layers from Φ's i-th run to the next one. After the last run come
// those up to the first run of the next batch.
func (e *evaluation) after(phi Phi, i, rows int) (ms float64) {
	body, end := e.body[rows], phi[i].End
	if i+1 < len(phi) {
		return body[phi[i+1].First] - body[end] + e.call[0]
	}
	if last := len(e.Blocks); end < last {
		ms += body[last] - body[end] + e.call[0]
	}
	if first := phi[0].First; first > 0 {
		ms += body[first] + e.call[0]
	}
	return ms
}

// twins are the times of instances of the whole model.
func (e *evaluation) twins(left, most int) parts {
	p := parts{runs: 1, shadow: e.call[1] + e.shadow[most][len(e.Blocks)]}
	if left > 0 {
		p.body = e.call[0] + e.body[left][len(e.Blocks)]
	}
	p.both, p.turns, p.late = max(p.body, p.shadow), max(p.body, p.shadow), p.shadow > p.body
	return p
}

// pipelined are the period and the latency if the shadow begins the next batch while the body
// runs its own layers. With one run the period is the time of who has more to do. The body sends a
// batch, runs its own layers after Φ for the batch before, and computes its rows within Φ last, so
// the latency is a period and the body's own layers. For example 0.2 of the
// work outside Φ and 10 rows, of which the shadow takes 6.25: each works as long as the whole
// model takes for 5 rows, and a batch takes as long as 5+2 = 7 rows.
//
// With several runs two batches take turns at the shadow, run by run, so a short run waits for a long
// one of the other batch. The period is the sum, over the runs, of the longer of the shadow's run and the
// body's with its own layers up to the next run; the last one's are those before the first run, too. A batch
// takes two periods, as there are two. For example runs of 5 and 1 ms on the shadow, on the body 1 and
// 0.2 ms, and 2 ms of own layers after each: max(5, 1+2) + max(1, 0.2+2) = 7.2 ms, and not 6.
func (p parts) pipelined() (period, latency float64) {
	return p.turns, min(p.own+float64(p.runs)*p.turns, pipelineDepth*p.turns)
}

// waiting is the period, and the latency, if the shadow waits meanwhile (Eq. 6).
func (p parts) waiting() float64 { return p.own + p.both }

// time sets a split's times: pipelined, unless the shadow is to wait, has nothing to gain, or
// only waiting is within the SLO.
func (e *evaluation) time(s *Split, p parts) {
	waiting := p.waiting()
	if !e.options.Synchronous && p.late {
		s.Period, s.Latency = p.pipelined()
		if s.Period < waiting && (e.within(s.Latency) || !e.within(waiting)) {
			return
		}
	}
	s.Period, s.Latency, s.Waits = waiting, waiting, true
}

// split is the best split of a batch.
func (e *evaluation) split(phi Phi, rows, n int) Split {
	var best Split
	for sent := 0; sent <= e.sendable(rows, n); sent++ {
		s := e.sending(phi, rows, sent, n)
		if sent == 0 || e.better(s, best) {
			best = s
		}
	}
	return best
}

// sendable is the maximum number of rows of a batch that n shadows take.
func (e *evaluation) sendable(rows, n int) int { return min(rows, n*e.options.ShadowRows) }

// sending is the split that sends that many rows, nearly equally, to n shadows.
func (e *evaluation) sending(phi Phi, rows, sent, n int) Split {
	s := Split{Rows: rows, Body: rows - sent, Shadows: make([]int, n)}
	for i := range s.Shadows {
		s.Shadows[i] = sent / n
		if i < sent%n {
			s.Shadows[i]++
		}
	}
	e.time(&s, e.parts(phi, rows, sent, n))
	return s
}

// better compares two splits of the same batch: within the SLO first, then the shorter
// period, then the shorter latency. Outside the SLO the shorter latency is better.
func (e *evaluation) better(s, than Split) bool {
	in, other := e.within(s.Latency), e.within(than.Latency)
	switch {
	case in != other:
		return in
	case !in:
		return s.Latency < than.Latency
	case s.Period != than.Period:
		return s.Period < than.Period
	}
	return s.Latency < than.Latency
}

func (e *evaluation) within(latency float64) bool {
	return e.options.SLO == 0 || latency <= e.options.SLO
}

// pair evaluates a Φ with n shadows at every batch.
func (e *evaluation) pair(phi Phi, n int) Pair {
	p := Pair{Phi: phi, Shadows: n, Load: e.Load(phi), Weights: e.Weights(phi)}
	h := e.holds(phi)
	var best rank
	for b := 1; b <= e.options.MaxRows; b++ {
		s := e.split(phi, b, n)
		p.Splits = append(p.Splits, s)
		if now := e.rank(h, s, n); b == e.options.MinRows || b > e.options.MinRows && now.better(best) {
			p.Best, p.Within, best = s, e.within(s.Latency), now
		}
	}
	most := 0
	for _, rows := range p.Best.Shadows {
		most = max(most, rows)
	}
	p.Cost, p.PerSecond = e.cost(h, p.Best, n), 1000*float64(p.Best.Rows)/p.Best.Period
	p.Activations = int64(most) * e.Activations(phi)
	if n > 0 {
		p.Memory = e.memory(p.Weights, p.Activations)
	}
	p.BodyMemory = e.Own + e.weights[len(e.Blocks)] + int64(p.Best.Rows)*e.Model.Activations(e.All())
	return p
}

// memory is what a shadow takes in bytes.
func (e *evaluation) memory(weights, activations int64) int64 {
	if e.options.Memory == Shared {
		weights = 0
	}
	return e.Own + weights + activations
}

// held are the sizes in bytes of Φ: its weights, and its activations for each row.
type held struct{ weights, activations int64 }

func (e *evaluation) holds(phi Phi) (h held) {
	for _, r := range phi {
		h.weights += e.weights[r.End] - e.weights[r.First]
		h.activations = max(h.activations, e.activations[e.key(r)])
	}
	return h
}

// cost is the price of a request in core-milliseconds.
func (e *evaluation) cost(h held, s Split, n int) float64 {
	return e.price(h, s.Rows, s.sent(), n) * s.Period / float64(s.Rows)
}

// price is what body and n shadows cost in cores.
func (e *evaluation) price(h held, rows, sent, n int) float64 {
	o := e.options
	blocks := len(e.Blocks)
	memory := float64(e.Own + e.weights[blocks] + int64(rows)*e.activations[blocks])
	cores := float64(o.Body)
	if n > 0 {
		cores += float64(n * o.Shadow)
		memory += float64(n) * float64(e.memory(h.weights, int64((sent+n-1)/n)*h.activations))
	}
	return cores/1000 + o.Rho*memory/(1<<30)
}

// rank orders pairs: the least value first, of equal ones the one that fails least.
type rank struct {
	// value is the cost, or the memory with [Options.Reach]; infinite if the pair fails.
	value float64
	// failing is how much a pair fails by: its latency outside the SLO, or its time for a
	// request if it serves too few.
	failing float64
}

func (r rank) better(than rank) bool {
	if r.value != than.value {
		return r.value < than.value
	}
	return r.failing < than.failing
}

// rank ranks a split of a Φ on n shadows.
func (e *evaluation) rank(h held, s Split, n int) rank {
	each := s.Period / float64(s.Rows)
	switch {
	case !e.within(s.Latency):
		return rank{math.Inf(1), 1e15 + s.Latency}
	case e.options.Reach == 0:
		return rank{value: e.cost(h, s, n)}
	case n > 0 && each*e.least[n] > 1+1e-12:
		return rank{math.Inf(1), each}
	}
	return rank{float64(e.memory(h.weights, int64((s.sent()+max(n, 1)-1)/max(n, 1))*h.activations)), each}
}

// reach finds the requests per ms that a pair with each number of shadows must have.
func (e *evaluation) reach() {
	if e.options.Reach == 0 {
		return
	}
	part := e.options.Reach
	e.options.Reach = 0
	e.least = []float64{0}
	for n := 1; n <= e.options.Shadows; n++ {
		e.least = append(e.least, part*e.pair(e.All(), n).PerSecond/1000)
	}
	e.options.Reach = part
}
