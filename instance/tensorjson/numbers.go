package tensorjson

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// flat reports whether the next array is one of numbers that [Values.numbers] can read.
func (v *Values) flat(r *Reader) bool {
	if v.Type == tensor.Bool || v.Type == tensor.FP16 || v.Type == tensor.BF16 || v.Type.Size() == 0 {
		return false
	}
	inside := Reader{data: r.data, at: r.at + 1}
	c := inside.Peek()
	return c == '-' || c-'0' <= 9
}

// numbers reads an array of numbers at the given depth. Such arrays are most of a request's
// body, so it reads them in one pass without a call for each element. It leaves unusual
// numbers to [Values.element], one by one.
func (v *Values) numbers(r *Reader, depth int) error {
	if v.leaf < 0 {
		v.leaf = depth + 1
	}
	if v.leaf != depth+1 {
		return errRagged
	}
	if r.depth+1 > maxDepth {
		return fmt.Errorf("the body is nested more than %d deep", maxDepth)
	}
	limit := v.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	before, data, out := v.taken, r.data, v.Data
	for at := r.at + 1; ; at++ {
		for at < len(data) && space(data[at]) {
			at++
		}
		next, read := at, int64(0)
		if v.Type == tensor.FP32 && len(data)-at >= floatBytes && (data[at+1] == '.' || data[at] == '-') {
			out, next, read = shortFloats(data, at, out, limit-v.taken)
			v.taken += read
		}
		if read == 0 {
			var n decimal
			n, next = scan(data, at)
			ok := next > 0 && v.taken < limit
			if ok {
				if v.Type == tensor.FP32 {
					var f float32
					f, ok = n.float32()
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
				} else {
					out, ok = n.appendTo(out, v.Type)
				}
			}
			if ok {
				v.taken++
			} else {
				if v.Data = out[:v.taken*int64(v.Type.Size())]; at < len(data) && data[at] == '[' {
					return errRagged
				}
				r.at = at
				if err := v.element(r); err != nil {
					return err
				}
				out, next = v.Data, r.at
			}
		}
		for at = next; at < len(data) && space(data[at]); {
			at++
		}
		if at < len(data) && data[at] == ',' {
			continue
		}
		if v.Data, r.at = out, at; !r.Take(']') {
			return r.fail(`"," or "]"`)
		}
		return v.Length(depth, v.taken-before)
	}
}

func space(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// decimal is the number ± digits · 10^exponent. whole says that it is written without a
// point and without an exponent.
type decimal struct {
	digits   uint64
	exponent int
	negative bool
	whole    bool
}

// significant is the number of digits, without leading zeros, that always fit a decimal.
const significant = 19

// scan reads the JSON number at data[at] and returns the position after it. next is 0 if
// there is no number, or one that does not fit a decimal.
func scan(data []byte, at int) (n decimal, next int) {
	if at < len(data) && data[at] == '-' {
		n.negative = true
		at++
	}
	first := at
	if len(data)-at >= 2 && data[at]-'0' <= 9 && data[at+1] == '.' { // The most frequent case.
		n.digits, at = uint64(data[at]-'0'), at+1
	} else {
		n.digits, at = digits(data, at, 0)
	}
	if at == first || data[first] == '0' && at > first+1 {
		return n, 0
	}
	count := at - first
	if data[first] == '0' {
		count = 0
	}
	n.whole = true
	if at < len(data) && data[at] == '.' {
		point := at + 1
		at = point
		if count == 0 { // Leading zeros do not count.
			for at < len(data) && data[at] == '0' {
				at++
			}
		}
		lead := at
		n.digits, at = fraction(data, at, n.digits)
		if at == point {
			return n, 0
		}
		count += at - lead
		n.whole, n.exponent = false, point-at
	}
	if count > significant {
		return n, 0
	}
	if at < len(data) && data[at]|0x20 == 'e' {
		n.whole = false
		return n.scale(data, at+1)
	}
	return n, at
}

// scale reads the exponent at data[at] and adds it to the number.
func (n decimal) scale(data []byte, at int) (decimal, int) {
	negative := false
	if at < len(data) && (data[at] == '-' || data[at] == '+') {
		negative = data[at] == '-'
		at++
	}
	first := at
	e, at := digits(data, at, 0)
	if at == first || at-first > 4 {
		return n, 0
	}
	if negative {
		n.exponent -= int(e)
	} else {
		n.exponent += int(e)
	}
	return n, at
}

// digits appends the digits at data[at] to n and returns the position after them. The
// result is wrong beyond [significant] digits.
func digits(data []byte, at int, n uint64) (uint64, int) {
	for len(data)-at >= 8 {
		next, count := leading(binary.LittleEndian.Uint64(data[at:]))
		n = n*tens[count&15] + next
		if at += count; count < 8 {
			return n, at
		}
	}
	for at < len(data) && data[at]-'0' <= 9 {
		n = 10*n + uint64(data[at]-'0')
		at++
	}
	return n, at
}

// fraction is digits, optimised for seven to nine digits. It counts the digits among the
// first sixteen bytes without a branch, because a CPU could not predict one.
func fraction(data []byte, at int, n uint64) (uint64, int) {
	if len(data)-at < 16 {
		return digits(data, at, n)
	}
	high, a := leading(binary.LittleEndian.Uint64(data[at:]))
	low, b := leading(binary.LittleEndian.Uint64(data[at+8:]))
	all := -(a >> 3) // The second eight bytes count only if all of the first are digits.
	low, b = low&uint64(all), b&all
	n = (n*tens[a&15]+high)*tens[b&15] + low
	if at += a + b; b < 8 {
		return n, at
	}
	return digits(data, at, n)
}

// leading returns the number that the leading digits of eight bytes form, and how many
// there are. It shifts the digits to the end and puts zeros before them.
func leading(eight uint64) (uint64, int) {
	wide := bits.TrailingZeros64(notDigits(eight)) &^ 7
	return valueOf(eight<<(64-wide) | zeros>>wide), wide / 8
}

// zeros are eight digits 0.
const zeros = 0x3030303030303030

// tens are the powers of ten for up to eight digits. The other elements make every index of
// four bits valid, so an access needs no bounds check.
var tens = [16]uint64{1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}

// notDigits sets the highest bit of the first of eight bytes that is not a digit, and of no
// byte before it. A digit less '0' is at most 9, so it stays below 0x80 when 0x76 is added.
func notDigits(eight uint64) uint64 {
	const above = 0x7676767676767676
	eight ^= zeros
	return (eight + above | eight) & 0x8080808080808080
}

// valueOf returns the number that eight digits form. It joins pairs of digits, then pairs of
// these, then the two halves.
func valueOf(eight uint64) uint64 {
	eight -= zeros
	eight = eight*10 + eight>>8
	const pairs = 0x000000ff000000ff
	return (eight&pairs*(100+1_000_000<<32) + eight>>16&pairs*(1+10_000<<32)) >> 32
}

// powers are the powers of ten that a float64 represents exactly.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// appendTo appends the number as an element of a type. It returns false if it cannot; the
// caller must then discard the appended bytes.
func (n decimal) appendTo(out []byte, kind tensor.Type) ([]byte, bool) {
	if kind == tensor.FP64 {
		f, ok := n.float64()
		return binary.LittleEndian.AppendUint64(out, math.Float64bits(f)), ok
	}
	wide := uint(8 * kind.Size())
	switch kind {
	case tensor.Uint8, tensor.Uint16, tensor.Uint32:
		if !n.whole || n.negative || n.digits >= 1<<wide {
			return out, false
		}
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		if !n.whole || n.digits >= 1<<(wide-1) {
			return out, false
		}
		if n.negative {
			n.digits = -n.digits
		}
	default:
		return out, false
	}
	return appendWhole(out, kind.Size(), n.digits), true
}

// float64 returns the nearest float64. It returns false unless digits and power are both
// exact: then a single rounding gives the nearest (Clinger 1990).
func (n decimal) float64() (float64, bool) {
	if n.digits > 1<<53 {
		return 0, false
	}
	return n.rounded()
}

// float32 returns the nearest float32, and false if it cannot be sure. The float64 d comes
// from at most two roundings, so its error is below two units in the last place. Rounding d
// gives the right float32 unless the midpoint between two float32 is that near. A float64
// has 52 bits of fraction, 29 more than a float32. At a midpoint these 29 bits are 2^28.
func (n decimal) float32() (float32, bool) {
	d, ok := n.rounded()
	if !ok {
		return 0, false
	}
	const (
		middle = 1 << 28
		near   = 4
	)
	last := math.Float64bits(d) & (1<<29 - 1)
	return float32(d), last-(middle-near) > 2*near && math.Abs(d) <= math.MaxFloat32
}

// rounded returns the number with at most two roundings, or one if its digits fit into 53
// bits.
func (n decimal) rounded() (float64, bool) {
	d := float64(n.digits)
	switch {
	case n.exponent == 0:
	case n.exponent < 0 && -n.exponent < len(powers):
		d /= powers[-n.exponent]
	case n.exponent > 0 && n.exponent < len(powers):
		d *= powers[n.exponent]
	default:
		return 0, false
	}
	if n.negative {
		d = -d
	}
	return d, true
}
