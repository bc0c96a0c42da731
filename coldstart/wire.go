package coldstart

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxCount is the highest count that is taken up: squares of it can be summed.
const MaxCount = 1 << 28

// errDamaged is all that can be said of bytes that make no sense.
var errDamaged = errors.New("it is damaged")

// wireWriter appends numbers.
type wireWriter []byte

// newWireWriter begins the state of a policy.
func newWireWriter(policy, version byte) *wireWriter { return &wireWriter{policy, version} }

// Count appends a number that is not negative.
func (w *wireWriter) Count(n uint64) { *w = binary.AppendUvarint(*w, n) }

// Number appends any whole number.
func (w *wireWriter) Number(n int64) { *w = binary.AppendVarint(*w, n) }

// Real appends a number with seven digits.
func (w *wireWriter) Real(f float64) {
	*w = binary.LittleEndian.AppendUint32(*w, math.Float32bits(float32(f)))
}

// maxSpan is the longest time, ten years in milliseconds; longer ones are written
// as that.
const maxSpan = 10 * 365 * 24 * 3600 * 1000

// Spans appends times, to the millisecond.
func (w *wireWriter) Spans(all []time.Duration) {
	w.Count(uint64(len(all)))
	for _, d := range all {
		w.Count(min(maxSpan, uint64(max(0, d)/time.Millisecond)))
	}
}

// wireReader takes them out again. After the first error it gives zeros.
type wireReader struct {
	left []byte
	err  error
}

// newWireReader checks whose state it is.
func newWireReader(policy, version byte, state []byte) *wireReader {
	switch {
	case len(state) < 2:
		return &wireReader{err: errDamaged}
	case state[0] != policy:
		return &wireReader{err: fmt.Errorf("it is of the policy %q, not %q", state[0], policy)}
	case state[1] != version:
		return &wireReader{err: fmt.Errorf("its version is %d, not %d", state[1], version)}
	}
	return &wireReader{left: state[2:]}
}

// Fail says that what was read makes no sense.
func (r *wireReader) Fail() {
	if r.err == nil {
		r.left, r.err = nil, errDamaged
	}
}

// Failed reports whether there was an error.
func (r *wireReader) Failed() bool { return r.err != nil }

// Count reads a number from 0 to limit.
func (r *wireReader) Count(limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.left)
	if size <= 0 || n > limit {
		r.Fail()
		return 0
	}
	r.left = r.left[size:]
	return n
}

// Number reads a whole number.
func (r *wireReader) Number() int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Varint(r.left)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.left = r.left[size:]
	return n
}

// Real reads a number from 0 to limit.
func (r *wireReader) Real(limit float64) float64 {
	if r.err != nil {
		return 0
	}
	if len(r.left) < 4 {
		r.Fail()
		return 0
	}
	f := float64(math.Float32frombits(binary.LittleEndian.Uint32(r.left)))
	if !(f >= 0 && f <= limit) { // NaN, too.
		r.Fail()
		return 0
	}
	r.left = r.left[4:]
	return f
}

// Spans reads at most limit times.
func (r *wireReader) Spans(limit uint64) []time.Duration {
	all := make([]time.Duration, r.Count(limit))
	for i := range all {
		all[i] = time.Duration(r.Count(maxSpan)) * time.Millisecond
	}
	return all
}

// Done is the first error, or that something is left over.
func (r *wireReader) Done() error {
	if len(r.left) > 0 {
		r.Fail()
	}
	if r.err != nil {
		return fmt.Errorf("what is known of idle times cannot be restored: %w", r.err)
	}
	return nil
}
