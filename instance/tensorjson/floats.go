package tensorjson

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// floatBytes is more than what [shortFloats] looks at for one number: a sign, a digit, the point, eighteen digits and
// the byte behind them.
const floatBytes = 26

// shortFloats reads FP32 numbers of the most frequent form, [-]D.D… with up to eighteen digits in all, from data[at]
// on, as many as follow each other with commas and at most one space between them, and at most limit. It appends them to
// out and returns the position after the last one; read is their number. It leaves every number of which it is not sure
// to [scan].
//
// It has no call and hardly a branch that depends on a number's digits or sign, which a CPU could not predict.
func shortFloats(data []byte, at int, out []byte, limit int64) (appended []byte, next int, read int64) {
	next = at
	for read < limit && len(data)-at >= floatBytes {
		negative := 0
		if data[at] == '-' {
			negative = 1
		}
		window := data[at+negative:]
		window = window[:floatBytes-1] // One check of bounds for all that follows.
		first := uint64(window[0] - '0')
		if first > 9 || window[1] != '.' {
			break
		}
		high, low := binary.LittleEndian.Uint64(window[2:]), binary.LittleEndian.Uint64(window[10:])
		a, b := bits.TrailingZeros64(notDigits(high))&^7, bits.TrailingZeros64(notDigits(low))&^7
		b &= -(a >> 6) // The second eight bytes count only if all of the first are digits.
		if a == 0 {
			break
		}
		upper := valueOf(high<<((64-a)&63) | zeros>>(a&63)&^uint64(-(a>>6)))
		lower := valueOf(low<<((64-b)&63)&^-isZero(b) | zeros>>(b&63)&^uint64(-(b>>6)))
		digits := (first*tens[a>>3&15]+upper)*tens[b>>3&15] + lower
		count := (a + b) >> 3
		if count == 16 { // A float64 mostly has one or two more.
			for count < 18 && window[2+count]-'0' <= 9 {
				digits = 10*digits + uint64(window[2+count]-'0')
				count++
			}
			if digits >= 1e18 { // It may have overflowed.
				break
			}
		}
		if c := window[2+count]; c != ',' && c != ']' {
			break
		}
		// As in [decimal.float32]. So few digits fit an int64, which is faster to convert.
		f := math.Float64bits(float64(int64(digits))/powers[count]) | uint64(negative)<<63
		const (
			middle = 1 << 28
			near   = 4
		)
		if last := f & (1<<29 - 1); last-(middle-near) <= 2*near {
			break
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(math.Float64frombits(f))))
		read++
		next = at + negative + 2 + count
		if data[next] == ']' {
			break
		}
		if at = next + 1; data[at] == ' ' {
			at++
		}
	}
	return out, next, read
}

// isZero is 1 for 0, and 0 for other numbers up to 64.
func isZero(n int) uint64 { return uint64(n-1) >> 63 }
