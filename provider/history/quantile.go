package history

import "math"

// Quantile estimates the value below which a part q of what a histogram counts lies, by a line through the bucket where
// it is. counts[i] is the number at most bounds[i] and above the bound before; the last is the number above all bounds, and
// counts as the last bound. It returns NaN for an empty histogram.
func Quantile[N uint32 | uint64](bounds []float64, counts []N, q float64) float64 {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	if total == 0 {
		return math.NaN()
	}
	rank, below := q*total, 0.0
	for i, n := range counts {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		if i >= len(bounds) {
			break
		}
		low := 0.0
		if i > 0 {
			low = bounds[i-1]
		}
		return low + (bounds[i]-low)*(rank-below)/float64(n)
	}
	return bounds[len(bounds)-1]
}

// short is a number of at least 0 in two bytes, with an error of less than 0.02 %: 2,000 times the logarithm to the base 2
// of one more than the number. 0 stands for 0, and for no number.
type short uint16

const shortScale = 2000

func toShort(x float64) short {
	if !(x > 0) {
		return 0
	}
	return short(min(math.MaxUint16, max(1, math.Round(shortScale*math.Log2(1+x)))))
}

func (s short) value() float64 { return math.Exp2(float64(s)/shortScale) - 1 }
