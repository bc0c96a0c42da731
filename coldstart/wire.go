package coldstart

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// What Marshal gives begins with a byte for the policy and one for the version
// of its form; then come numbers.
const (
	wireHHP    = 'h'
	wireLSTH   = 'l'
	wireHazard = 'f'
	version    = 1
)

// maxCount is the highest count that is taken up: squares of it can be summed.
const maxCount = 1 << 28

// errDamaged is all that can be said of bytes that make no sense.
var errDamaged = errors.New("damaged")

// writer puts numbers one after the other, small ones in few bytes.
type writer []byte

func newWriter(policy byte) writer { return writer{policy, version} }

func (w *writer) count(n uint64) { *w = binary.AppendUvarint(*w, n) }
func (w *writer) number(n int64) { *w = binary.AppendVarint(*w, n) }
func (w *writer) real(f float64) {
	*w = binary.LittleEndian.AppendUint32(*w, math.Float32bits(float32(f)))
}
func (w *writer) span(d time.Duration) { w.count(uint64(max(0, d) / time.Millisecond)) }

func (w *writer) spans(all []time.Duration) {
	w.count(uint64(len(all)))
	for _, d := range all {
		w.span(d)
	}
}

// reader takes them out again. After the first error it gives zeros.
type reader struct {
	left []byte
	err  error
}

// newReader checks whose state it is.
func newReader(policy byte, state []byte) *reader {
	switch {
	case len(state) < 2:
		return &reader{err: errDamaged}
	case state[0] != policy:
		return &reader{err: fmt.Errorf("it is of the policy %q, not %q", state[0], policy)}
	case state[1] != version:
		return &reader{err: fmt.Errorf("its version is %d, not %d", state[1], version)}
	}
	return &reader{left: state[2:]}
}

func (r *reader) fail() { r.left, r.err = nil, errDamaged }

// count reads a number up to limit.
func (r *reader) count(limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.left)
	if size <= 0 || n > limit {
		r.fail()
		return 0
	}
	r.left = r.left[size:]
	return n
}

func (r *reader) number() int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Varint(r.left)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.left = r.left[size:]
	return n
}

// real reads a number that is finite and not negative.
func (r *reader) real() float64 {
	if r.err != nil {
		return 0
	}
	if len(r.left) < 4 {
		r.fail()
		return 0
	}
	f := float64(math.Float32frombits(binary.LittleEndian.Uint32(r.left)))
	if !(f >= 0 && f <= math.MaxFloat32) {
		r.fail()
		return 0
	}
	r.left = r.left[4:]
	return f
}

func (r *reader) span() time.Duration {
	return time.Duration(r.count(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

func (r *reader) spans(limit uint64) []time.Duration {
	all := make([]time.Duration, 0, r.count(limit))
	for range cap(all) {
		all = append(all, r.span())
	}
	return all
}

// done is the first error, or that something is left over.
func (r *reader) done() error {
	if r.err == nil && len(r.left) > 0 {
		r.err = errDamaged
	}
	if r.err != nil {
		return fmt.Errorf("restore what is known of idle times: %w", r.err)
	}
	return nil
}
