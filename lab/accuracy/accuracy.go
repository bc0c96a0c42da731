// Package accuracy measures how good predictions are: INFless §3.3's |P̂ − P|/P for
// every model, batch size and CPU share, and its means. No row is left out of a mean.
// Begin with Summarise; the rest is the command "faas-infer-lab accuracy", which
// predicts and measures.
package accuracy

import (
	"errors"
	"fmt"
	"math"
)

// Row is one prediction and the measurement that it is compared with.
type Row struct {
	Model      string `json:"model"`
	Batch      int    `json:"batch"`
	Millicores int    `json:"millicores"`
	// Predicted and Measured are times in µs.
	Predicted float64 `json:"predicted_us"`
	Measured  float64 `json:"measured_us"`
}

// SignedPercent returns (P̂ − P)/P in %. It is above 0 if the prediction is too high.
func (r Row) SignedPercent() float64 { return (r.Predicted - r.Measured) / r.Measured * 100 }

// ErrorPercent returns |P̂ − P|/P in %.
func (r Row) ErrorPercent() float64 { return math.Abs(r.SignedPercent()) }

// Mean is the mean of the rows of one model.
type Mean struct {
	Model string `json:"model"`
	// Rows is the number of rows. ErrorPercent is the mean of their errors,
	// BiasPercent that of their signed errors.
	Rows         int     `json:"rows"`
	ErrorPercent float64 `json:"error_pct"`
	BiasPercent  float64 `json:"bias_pct"`
}

// Summary has the means of all rows and the worst row.
type Summary struct {
	// Models are in the order in which they first occur.
	Models []Mean `json:"models"`
	// All is the mean over all rows, each with the same weight. Its Model is "all".
	All Mean `json:"all"`
	// Worst is the row with the largest error, the first if several are equal.
	Worst Row `json:"worst"`
}

// Summarise returns the means of all rows. It returns an error if there are no rows, or if
// a row has no measurement or a time that is not finite. The error names that row: leaving
// it out would hide it.
func Summarise(rows []Row) (*Summary, error) {
	if len(rows) == 0 {
		return nil, errors.New("accuracy: there are no rows to summarise")
	}
	s := &Summary{All: Mean{Model: "all"}, Worst: rows[0]}
	index := map[string]int{}
	for _, r := range rows {
		if !(r.Measured > 0 && r.Predicted >= 0) || math.IsInf(r.Measured, 0) || math.IsInf(r.Predicted, 0) {
			return nil, fmt.Errorf("accuracy: %s at a batch of %d on %dm: %v µs predicted and %v µs measured cannot be compared", r.Model, r.Batch, r.Millicores, r.Predicted, r.Measured)
		}
		i, ok := index[r.Model]
		if !ok {
			i = len(s.Models)
			index[r.Model], s.Models = i, append(s.Models, Mean{Model: r.Model})
		}
		s.Models[i].add(r)
		s.All.add(r)
		if r.ErrorPercent() > s.Worst.ErrorPercent() {
			s.Worst = r
		}
	}
	for i := range s.Models {
		s.Models[i].divide()
	}
	s.All.divide()
	return s, nil
}

func (m *Mean) add(r Row) {
	m.Rows++
	m.ErrorPercent += r.ErrorPercent()
	m.BiasPercent += r.SignedPercent()
}

func (m *Mean) divide() {
	m.ErrorPercent /= float64(m.Rows)
	m.BiasPercent /= float64(m.Rows)
}
