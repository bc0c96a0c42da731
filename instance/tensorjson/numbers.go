package tensorjson

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// flat reports whether the array that comes next is one of numbers which [Values.numbers]
// reads.
func (v *Values) flat(r *Reader) bool {
	if v.Type == tensor.Bool || v.Type == tensor.FP16 || v.Type.Size() == 0 {
		return false
	}
	inside := Reader{data: r.data, at: r.at + 1}
	c := inside.Peek()
	return c == '-' || c-'0' <= 9
}

// numbers reads an array of numbers at the given depth. Most of a request's body is such
// arrays, so that they are read in one pass without a call for each element; what is not as
// usual is left to [Values.element], number by number.
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
		n, next := scan(data, at)
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

// decimal is the number ± digits · 10^exponent. whole: it is written without a point and
// without an exponent.
type decimal struct {
	digits   uint64
	exponent int
	negative bool
	whole    bool
}

// significant is the most digits after the leading zeros that a decimal holds for certain.
const significant = 19

// scan reads the JSON number at a place and returns where it ends; 0 if none is there, or
// none that a decimal can hold.
func scan(data []byte, at int) (n decimal, next int) {
	if at < len(data) && data[at] == '-' {
		n.negative = true
		at++
	}
	first := at
	if len(data)-at >= 2 && data[at]-'0' <= 9 && data[at+1] == '.' { // As most are.
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
		if count == 0 { // Zeros that lead do not count.
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

// scale reads the exponent at a place.
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

// digits appends the digits at a place to a number; beyond [significant] of them it is wrong.
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

// fraction is digits for some that are often between seven and nine: of the first sixteen
// bytes it finds out without a branch how many are digits, which nothing could foresee.
func fraction(data []byte, at int, n uint64) (uint64, int) {
	if len(data)-at < 16 {
		return digits(data, at, n)
	}
	high, a := leading(binary.LittleEndian.Uint64(data[at:]))
	low, b := leading(binary.LittleEndian.Uint64(data[at+8:]))
	all := -(a >> 3) // Those of the second eight count if all of the first do.
	low, b = low&uint64(all), b&all
	n = (n*tens[a&15]+high)*tens[b&15] + low
	if at += a + b; b < 8 {
		return n, at
	}
	return digits(data, at, n)
}

// leading is the number that the first of eight bytes are, those that are digits, and how
// many these are. They are moved to the end, behind zeros.
func leading(eight uint64) (uint64, int) {
	wide := bits.TrailingZeros64(notDigits(eight)) &^ 7
	return valueOf(eight<<(64-wide) | zeros>>wide), wide / 8
}

// zeros are eight digits.
const zeros = 0x3030303030303030

// tens are the powers of ten by which up to eight digits move a number; the rest makes any
// index of four bits one of it.
var tens = [16]uint64{1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}

// notDigits has the highest bit of the first of eight bytes that is not a digit, and of none
// before: what a digit has above that of 0 stays below 0x80 when 0x76 is added.
func notDigits(eight uint64) uint64 {
	const above = 0x7676767676767676
	eight ^= zeros
	return (eight + above | eight) & 0x8080808080808080
}

// valueOf is the number that eight digits are: pairs of digits are joined, then pairs of
// these, then the two halves.
func valueOf(eight uint64) uint64 {
	eight -= zeros
	eight = eight*10 + eight>>8
	const pairs = 0x000000ff000000ff
	return (eight&pairs*(100+1_000_000<<32) + eight>>16&pairs*(1+10_000<<32)) >> 32
}

// powers are those of ten that a float64 holds exactly.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// appendTo appends a number as an element of a type; false if that takes more than is done
// here, and what is appended is then of no use.
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

// float64 is the nearest float64, where one rounding finds it: digits and power are exact
// (Clinger 1990).
func (n decimal) float64() (float64, bool) {
	if n.digits > 1<<53 {
		return 0, false
	}
	return n.rounded()
}

// float32 is the nearest float32. The float64 d that two roundings lead to is wrong by less
// than two units of its last place; unless the middle between two float32 lies as near as
// that, rounding d leads to the right one of them. Of its 52 bits the last 29 are more than
// a float32 has, and in the middle they are 2^28.
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

// rounded is about the number: it is rounded twice, or once if its digits fit into 53 bits.
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
