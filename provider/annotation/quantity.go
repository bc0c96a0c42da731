package annotation

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// errCPU and errMemory say what the parsers below allow, as the end of "it must be …".
var (
	errCPU    = errors.New(`a number of cores above 0 or of millicores with "m"`)
	errMemory = errors.New("a size above 0 with Ki, Mi, Gi, Ti, k, M, G, T or no unit (bytes)")
)

// maxMillicores bounds a CPU quantity. More than a million cores is a typing mistake,
// and sums would overflow.
const maxMillicores = 1e9

// maxBytes bounds a memory quantity: up to here a float64 is exact.
const maxBytes = 1 << 53

// ParseCPU reads a CPU quantity as Kubernetes writes it, "500m", "1" or "0.5",
// in millicores, rounded up. The error ends the sentence "it must be …".
func ParseCPU(s string) (millicores int, err error) {
	number, isMilli := strings.CutSuffix(s, "m")
	v, ok := ParseDecimal(number)
	if !isMilli {
		v *= 1000
	}
	if !ok || v <= 0 || v > maxMillicores {
		return 0, errCPU
	}
	return int(roundUp(v)), nil
}

var memoryUnits = []struct {
	suffix string
	bytes  float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
}

// ParseMemory reads a size as Kubernetes writes it, "128Mi", "1.5Gi", "64M" or
// plain bytes, in bytes, rounded up. Kubernetes' "m" (thousandths of a byte)
// is refused: a user who writes "128m" means 128Mi. The error ends the sentence
// "it must be …".
func ParseMemory(s string) (bytes int64, err error) {
	number, unit := s, 1.0
	for _, u := range memoryUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	v, ok := ParseDecimal(number)
	if !ok || v <= 0 || v*unit > maxBytes {
		return 0, errMemory
	}
	return int64(roundUp(v * unit)), nil
}

// roundUp is math.Ceil that ignores an excess of at most 1e-6: 0.29 cores are 290
// millicores, not 291.
func roundUp(v float64) float64 {
	if nearest := math.Round(v); math.Abs(v-nearest) <= 1e-6 && nearest > 0 {
		return nearest
	}
	return math.Ceil(v)
}

// ParseDecimal reads at most 32 digits with at most one dot between or before them. It refuses
// signs, exponents, NaN and hexadecimal, which strconv accepts.
func ParseDecimal(s string) (float64, bool) {
	if s == "" || len(s) > 32 || s[len(s)-1] == '.' {
		return 0, false
	}
	dots := 0
	for _, c := range []byte(s) {
		if c == '.' {
			dots++
		} else if c < '0' || c > '9' {
			return 0, false
		}
	}
	if dots > 1 {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}
