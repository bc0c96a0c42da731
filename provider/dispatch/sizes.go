package dispatch

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// sizes estimates how large the rows of requests are before an instance has read them: by the sizes that
// instances reported of earlier requests. Requests whose bodies look alike have one size.
type sizes struct {
	// wanted: the times of some instance change with the size. Otherwise no body is looked at.
	wanted atomic.Bool
	// longest is the number of elements of the longest row, as far as it is known, if instances pad: that of the profile, or
	// of a longer one since. It is 0 if they do not.
	longest atomic.Int64
	// extra is [Stats.ExtraRows].
	extra uint64
	// reported is the mean of what instances reported.
	reported meanRows
	// known has what instances reported, fits what follows for others, by format. perToken is the number of elements for
	// each token, one for each input of the model, 0 if it is not known.
	known    map[look]int64
	fits     [formats]line
	perToken int64
	// counting counts the tokens of texts, nil if nothing does.
	counting *Counting
}

// look is what is seen of a body: the number of commas of JSON, otherwise of bytes. Of one with texts it is the number of
// these, and how many tokens they have together, or their mean length in bytes if nothing counts tokens (texts.go).
type look struct {
	format format
	length int
	rows   int
}

// format tells bodies apart whose looks mean different things.
type format uint8

const (
	// unread is a body of which nothing is seen, since it is compressed.
	unread format = iota
	textual
	binary
	worded
	// inTokens is a body whose tokens were all counted, sampled one of which a part was.
	inTokens
	sampled
	// shaped is one with tensors that say their shape, the number of rows and their length.
	shaped
	formats
)

// maxKnown bounds the looks whose sizes are known.
const maxKnown = 1024

// lookAt looks at a request's body.
func (s *sizes) lookAt(r *frame.Request) look {
	if !s.wanted.Load() || len(r.Header["Content-Encoding"]) > 0 {
		return look{}
	}
	start := bytes.TrimLeft(r.Body, " \t\r\n")
	json := len(start) > 0 && (start[0] == '{' || start[0] == '[')
	if json && s.pads() {
		if of, ok := lookAtTensors(r.Body); ok {
			return of
		}
	}
	if json && len(r.Header["Inference-Header-Content-Length"]) == 0 {
		if s.longest.Load() > 0 {
			return s.lookAtTexts(r)
		}
		return look{format: textual, length: bytes.Count(r.Body, []byte{','})}
	}
	return look{format: binary, length: len(r.Body)}
}

// lookAtTexts counts the tokens of a body in JSON with texts, or looks at it if that cannot be.
func (s *sizes) lookAtTexts(r *frame.Request) look {
	switch rows, tokens, exact := s.counting.count(r); {
	case rows > 0 && exact:
		return look{format: inTokens, rows: rows, length: tokens}
	case rows > 0:
		return look{format: sampled, rows: rows, length: tokens}
	}
	return lookAtTexts(r.Body)
}

// estimate returns the number of elements of a row, 0 if nothing is known.
func (s *sizes) estimate(of look) int64 {
	switch of.format {
	case unread:
		return 0
	case inTokens, sampled:
		return s.perToken * int64(of.length) / int64(of.rows)
	}
	if elements, ok := s.known[of]; ok {
		return elements
	}
	elements := s.fits[of.format].at(float64(of.length))
	if longest := s.longest.Load(); longest > 0 {
		elements = min(elements, longest)
	}
	return elements
}

// estimateOf sets the size and the rows of a call by what is seen of its body.
func (s *sizes) estimateOf(c *call) {
	c.elements = s.estimate(c.look)
	if c.look.rows == 0 && s.pads() { // A compressed body, or one in a binary format.
		c.unseen = int(s.reported.mean + 0.5)
	}
}

// arrive estimates a call that has come, and counts its rows.
func (s *sizes) arrive(c *call) {
	s.estimateOf(c)
	s.extra += uint64(c.rows() - 1)
}

// rows is how many rows a call seems to have.
func (c *call) rows() int { return max(1, c.look.rows, c.unseen) }

// looks are those of a batch's requests together: their format, unread if they have several, their mean
// length, that of a row if tokens were counted, and whether all are alike.
type looks struct {
	look
	mean  float64
	alike bool
}

// looksOf returns the looks of a batch.
func looksOf(calls []*call) looks {
	sum, n, all := 0, len(calls), looks{look: calls[0].look, alike: true}
	counted := all.format == inTokens || all.format == sampled
	if counted {
		n = 0
	}
	for _, c := range calls {
		if c.look.format != all.format {
			return looks{}
		}
		if sum += c.look.length; counted {
			n += c.look.rows
		}
		all.alike = all.alike && c.look == all.look
	}
	all.mean = float64(sum) / float64(n)
	return all
}

// learn keeps what an instance reported of a batch: the mean number of elements of its rows.
func (s *sizes) learn(of looks, elements int64) {
	switch {
	case elements <= 0 || of.format == unread || of.format == sampled && s.perToken > 0: // A sample says it roughly.
		return
	case of.format == inTokens || of.format == sampled:
		s.perToken = max(1, int64(float64(elements)/max(1, of.mean)+0.5))
		return
	}
	if longest := s.longest.Load(); longest > 0 && elements > longest {
		s.longest.Store(elements)
	} else if longest > 0 && elements >= longest-longest/64 && s.fits[of.format].weight > 0 {
		return // Longer texts were cut.
	}
	s.fits[of.format].add(of.mean, float64(elements))
	if !of.alike || of.format == worded { // Other words have other tokens.
		return
	}
	if _, ok := s.known[of.look]; !ok && len(s.known) >= maxKnown || s.known == nil {
		s.known = map[look]int64{}
	}
	s.known[of.look] = elements
}

// pads reports whether instances pad rows of different sizes.
func (s *sizes) pads() bool { return s.longest.Load() > 0 }

// turns takes in what m, one of the instances, has executed, and reports whether their padding begins or ends with it. They
// pad if one has reported rows, until no such instance is left and another one has executed a batch: the function
// has another model.
func (s *sizes) turns(all map[cluster.InstanceID]*instanceState, m *instanceState, ran Executed) bool {
	if ran.Rows > 0 {
		m.pads = true
		s.reported.add(ran.Rows)
		return !s.pads()
	}
	if ran.Size == 0 || !s.pads() {
		return false
	}
	for _, o := range all {
		if o.pads {
			return false
		}
	}
	s.reported = meanRows{}
	return true
}

// pad makes the policy and what looks at bodies know whether instances pad the texts of a batch. The lock is held.
func (d *Dispatcher) pad(now time.Time, pads bool) {
	longest, wanted := int64(0), pads
	if pads {
		longest = 1
	}
	for _, m := range d.instances {
		if wanted = wanted || m.Sizes != nil; pads {
			longest = max(longest, m.longest)
		}
	}
	d.sizes.longest.Store(longest)
	d.sizes.wanted.Store(wanted)
	d.sizes.known, d.sizes.fits, d.sizes.perToken = nil, [formats]line{}, 0 // Bodies look otherwise from now on.
	for _, m := range d.instances {
		if m.Instance.Longest = 0; pads {
			m.Instance.Longest = max(m.longest, 1)
		}
		if m.up && !m.lent {
			batching.Up(d.policy, now, m.Instance)
		}
	}
}

// meanRows is the mean number of rows of the latest requests.
type meanRows struct{ requests, mean float64 }

// rowsWindow is the number of requests after which 1/e of the weight of one is left.
const rowsWindow = 300

func (m *meanRows) add(rows float64) {
	m.requests = min(m.requests+1, rowsWindow)
	m.mean += (max(1, rows) - m.mean) / m.requests
}

// line is the straight line nearest to pairs of numbers, of which the last count most.
type line struct{ weight, x, y, xx, xy float64 }

// pairKept is the part of its weight that a pair keeps when another one comes.
const pairKept = 0.98

func (l *line) add(x, y float64) {
	for _, sum := range []*float64{&l.weight, &l.x, &l.y, &l.xx, &l.xy} {
		*sum *= pairKept
	}
	l.weight, l.x, l.y, l.xx, l.xy = l.weight+1, l.x+x, l.y+y, l.xx+x*x, l.xy+x*y
}

// at is the line's value, at least 1; 0 if there are no pairs. While all pairs have nearly one x, it is in
// proportion.
func (l *line) at(x float64) int64 {
	if l.weight == 0 || l.x <= 0 {
		return 0
	}
	meanX, meanY := l.x/l.weight, l.y/l.weight
	spread := l.xx/l.weight - meanX*meanX
	slope := meanY / meanX
	if spread > 1e-4*meanX*meanX {
		slope = (l.xy/l.weight - meanX*meanY) / spread
	}
	return int64(min(max(meanY+slope*(x-meanX), 1), 1<<40) + 0.5)
}

// predict sets the looks of the batch, its rows, and the times that it should take on its instance, with the size of
// its requests if they have one size, or if the instance pads them to one.
func (b *batch) predict(in *batching.Instance) {
	b.looks, b.rows = looksOf(b.calls), 0
	longest, alike := int64(0), true
	for _, c := range b.calls {
		b.rows += c.rows()
		longest = max(longest, c.elements)
		alike = alike && c.elements > 0 && (c.elements == b.calls[0].elements || in.Longest > 0)
	}
	if len(in.Exec) == 0 {
		return
	}
	b.least, b.predicted = in.Exec[0], predicted(in.Exec, b.rows)
	if in.Sizes == nil || !alike {
		return
	}
	scaled := func(t time.Duration, size int) time.Duration {
		return time.Duration(float64(t) * in.Sizes.Factor(size, longest))
	}
	// A request that is longer than planned may be late in any case, and is not refused for that.
	b.predicted = scaled(b.predicted, min(b.rows, len(in.Exec)))
	b.least = min(b.least, scaled(b.least, 1))
}
