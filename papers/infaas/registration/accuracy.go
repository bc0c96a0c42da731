package registration

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/variant"
)

// Metric says which answers are right.
type Metric string

// The metrics. An answer is right if its label is the class with the highest score, or
// one of the five highest.
const (
	Top1 Metric = "top-1"
	Top5 Metric = "top-5"
)

// ParseMetric reads a metric's name. "" is [Top1].
func ParseMetric(name string) (Metric, error) {
	switch m := Metric(name); m {
	case "":
		return Top1, nil
	case Top1, Top5:
		return m, nil
	}
	return "", &variant.FieldError{Field: "metric", Problem: fmt.Sprintf("is %q: it must be %s or %s", name, Top1, Top5)}
}

// Right reports whether the scores of one row, one for each class, give the label. Of
// equal scores the first is the highest. Scores with a NaN are wrong.
func (m Metric) Right(scores []float64, label int) bool {
	if label < 0 || label >= len(scores) || math.IsNaN(scores[label]) {
		return false
	}
	above := 0
	for i, s := range scores {
		if math.IsNaN(s) {
			return false
		}
		if s > scores[label] || s == scores[label] && i < label {
			above++
		}
	}
	return above == 0 || m == Top5 && above < 5
}

// Share is a part of some rows in percent, with the interval that holds the true part
// with 95 % confidence.
type Share struct {
	Value float64 `json:"value" yaml:"value"`
	Low   float64 `json:"low" yaml:"low"`
	High  float64 `json:"high" yaml:"high"`
	Rows  int     `json:"rows" yaml:"rows"`
}

// z is the 97.5th percentile of the normal distribution.
const z = 1.959963984540054

// ShareOf returns the share of hits in rows, with Wilson's interval. 45 of 50 are 90 %,
// between 78.6 and 95.7 %. There must be at least one row.
func ShareOf(hits, rows int) Share {
	n := float64(rows)
	p := float64(hits) / n
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	// At the ends the bound is exact, and rounding must not exclude the value.
	return Share{
		Value: 100 * p, Rows: rows,
		Low: 100 * min(p, max(0, middle-half)), High: 100 * max(p, min(1, middle+half)),
	}
}
