package dispatch

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// sizes estimates how large the rows of requests are before an instance has read them: by the sizes that
// instances reported of earlier requests. Requests whose bodies look alike have one size.
type sizes struct {
	// wanted: the times of some instance change with the size. Otherwise no body is looked at.
	wanted atomic.Bool
	// known has what instances reported, fits what follows for others, by format.
	known map[look]int64
	fits  [formats]line
}

// look is what is seen of a body without reading it: the number of commas of JSON, otherwise of bytes.
type look struct {
	format format
	length int
}

// format tells bodies apart whose looks mean different things.
type format uint8

const (
	// unread is a body of which nothing is seen, since it is compressed.
	unread format = iota
	textual
	binary
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
	if json && len(r.Header["Inference-Header-Content-Length"]) == 0 {
		return look{textual, bytes.Count(r.Body, []byte{','})}
	}
	return look{binary, len(r.Body)}
}

// estimate returns the number of elements of a row, 0 if nothing is known.
func (s *sizes) estimate(of look) int64 {
	if of.format == unread {
		return 0
	}
	if elements, ok := s.known[of]; ok {
		return elements
	}
	return s.fits[of.format].at(float64(of.length))
}

// looks are those of a batch's requests together: their format, unread if they have several, their mean
// length, and whether all are alike.
type looks struct {
	look
	mean  float64
	alike bool
}

// looksOf returns the looks of a batch.
func looksOf(calls []*call) looks {
	sum, all := 0, looks{look: calls[0].look, alike: true}
	for _, c := range calls {
		if c.look.format != all.format {
			return looks{}
		}
		sum += c.look.length
		all.alike = all.alike && c.look == all.look
	}
	all.mean = float64(sum) / float64(len(calls))
	return all
}

// learn keeps what an instance reported of a batch: the mean number of elements of its rows.
func (s *sizes) learn(of looks, elements int64) {
	if elements <= 0 || of.format == unread {
		return
	}
	s.fits[of.format].add(of.mean, float64(elements))
	if !of.alike {
		return
	}
	if _, ok := s.known[of.look]; !ok && len(s.known) >= maxKnown || s.known == nil {
		s.known = map[look]int64{}
	}
	s.known[of.look] = elements
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

// predict sets the looks of the batch, and the times that it should take on its instance, with the size of
// its requests if they have one size.
func (b *batch) predict(in *batching.Instance) {
	b.looks = looksOf(b.calls)
	if len(in.Exec) == 0 {
		return
	}
	n := len(b.calls)
	b.least, b.predicted = in.Exec[0], predicted(in.Exec, n)
	if in.Sizes == nil || b.calls[0].elements == 0 {
		return
	}
	for _, c := range b.calls {
		if c.elements != b.calls[0].elements {
			return
		}
	}
	scaled := func(t time.Duration, size int) time.Duration {
		return time.Duration(float64(t) * in.Sizes.Factor(size, b.calls[0].elements))
	}
	// A request that is longer than planned may be late in any case, and is not refused for that.
	b.least, b.predicted = min(b.least, scaled(b.least, 1)), scaled(b.predicted, min(n, len(in.Exec)))
}
