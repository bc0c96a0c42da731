package coldstart

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxCount is the highest count that a state may have: its square fits many times into a
// uint64.
const MaxCount = 1 << 28

// errDamaged is the error for bytes that are no valid state.
var errDamaged = errors.New("it is damaged")

// wireWriter appends numbers to a policy's state.
type wireWriter []byte

// newWireWriter begins the state of a policy with its name and version.
func newWireWriter(policy, version byte) *wireWriter { return &wireWriter{policy, version} }

// Count appends a number that is not negative.
func (w *wireWriter) Count(n uint64) { *w = binary.AppendUvarint(*w, n) }

// Number appends an integer.
func (w *wireWriter) Number(n int64) { *w = binary.AppendVarint(*w, n) }

// Real appends a number with seven digits.
func (w *wireWriter) Real(f float64) {
	*w = binary.LittleEndian.AppendUint32(*w, math.Float32bits(float32(f)))
}

// maxSpan is the longest time that Spans writes, ten years in milliseconds. It writes
// longer ones as maxSpan.
const maxSpan = 10 * 365 * 24 * 3600 * 1000

// Spans appends times, to the millisecond.
func (w *wireWriter) Spans(all []time.Duration) {
	w.Count(uint64(len(all)))
	for _, d := range all {
		w.Count(min(maxSpan, uint64(max(0, d)/time.Millisecond)))
	}
}

// wireReader reads what a wireWriter wrote. After the first error it returns zeros.
type wireReader struct {
	left []byte
	err  error
}

// newWireReader returns a reader of state. It checks the policy and the version.
func newWireReader(policy, version byte, state []byte) *wireReader {
	switch {
	case len(state) < 2:
		return &wireReader{err: errDamaged}
	case state[0] != policy:
		return &wireReader{err: fmt.Errorf("it belongs to the policy %q, not %q", state[0], policy)}
	case state[1] != version:
		return &wireReader{err: fmt.Errorf("its version is %d, not %d", state[1], version)}
	}
	return &wireReader{left: state[2:]}
}

// Fail marks the state as damaged.
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

// Number reads an integer.
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

// Done returns the first error. Bytes left over are an error, too.
func (r *wireReader) Done() error {
	if len(r.left) > 0 {
		r.Fail()
	}
	if r.err != nil {
		return fmt.Errorf("the state of idle times cannot be restored: %w", r.err)
	}
	return nil
}
