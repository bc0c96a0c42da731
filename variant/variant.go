// Package variant chooses among the variants of an application's models: versions of one
// architecture that differ in precision, hardware, speed, accuracy and price. It says which
// variant answers a request that states latency and accuracy, and in which state an instance
// of a variant is. It measures, loads and places nothing. Begin with [Variant] and [Classes].
package variant

import (
	"fmt"
	"math"
	"time"
)

// Variant is a model in one precision on one kind of hardware, with its profile (§3.2).
type Variant struct {
	// Model is the architecture, as registered. Name is the variant's own, such as
	// resnet50-int8. Hardware is the kind of machine part that it runs on.
	Model, Name, Hardware string
	// Latency is the time of one inference, Load that of loading the variant.
	Latency, Load time.Duration
	// RPS is the rate at which one instance is saturated, as measured. It is not 1/Latency:
	// Table 2's products of both are 1, 2 and 12.
	RPS float64
	// Memory of an instance, in MB.
	Memory float64
	// Accuracy is in percent of the labelled set. 0 means that it is not known: such a variant
	// serves only requests that ask for none.
	Accuracy float64
	// Cost is the price of an instance per unit of time.
	Cost float64
}

// PerRequest is the price of one request at saturation.
func (v *Variant) PerRequest() float64 { return v.Cost / v.RPS }

// Check returns an error that names the first field without a valid value.
func (v *Variant) Check() error {
	switch {
	case v.Model == "":
		return &FieldError{"model", "is empty: name the architecture"}
	case v.Name == "":
		return &FieldError{"variant", "is empty: name the variant"}
	case v.Hardware == "":
		return &FieldError{"hardware", "is empty: name what it runs on, such as cpu"}
	case v.Latency <= 0:
		return &FieldError{"latency_ms", fmt.Sprintf("is %v: it must be more than 0", milliseconds(v.Latency))}
	case !(v.RPS > 0) || math.IsInf(v.RPS, 1):
		return &FieldError{"rps", fmt.Sprintf("is %v: it must be a number of requests per second, more than 0", v.RPS)}
	case v.Load < 0:
		return &FieldError{"load_ms", fmt.Sprintf("is %v: it must not be negative", milliseconds(v.Load))}
	case !(v.Memory >= 0) || math.IsInf(v.Memory, 1):
		return &FieldError{"memory_mb", fmt.Sprintf("is %v: it must be a number, 0 or more", v.Memory)}
	case !(v.Accuracy >= 0 && v.Accuracy <= 100):
		return &FieldError{"accuracy", fmt.Sprintf("is %v: it must be a percentage, from 0 to 100", v.Accuracy)}
	case !(v.Cost >= 0) || math.IsInf(v.Cost, 1) || math.IsInf(v.PerRequest(), 1):
		return &FieldError{"cost", fmt.Sprintf("is %v: it must be a price, 0 or more", v.Cost)}
	}
	return nil
}

// FieldError is an error about one field of a variant or query.
type FieldError struct {
	// Field is the name of its column. Problem says what is wrong and what to do.
	Field, Problem string
}

// Error names the field, its value and the fix.
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Query is what a request asks (Table 4).
type Query struct {
	// Model limits the choice to one architecture, unless it is "".
	Model string
	// Accuracy is the lowest accuracy in percent, 0 for any.
	Accuracy float64
	// Latency is the longest inference, 0 for any.
	Latency time.Duration
}

// Check returns an error that names the first field without a valid value.
func (q *Query) Check() error {
	switch {
	case !(q.Accuracy >= 0 && q.Accuracy <= 100):
		return &FieldError{"accuracy", fmt.Sprintf("is %v: it must be a percentage, from 0 to 100, or empty", q.Accuracy)}
	case q.Latency < 0:
		return &FieldError{"latency_ms", fmt.Sprintf("is %v: it must be more than 0, or empty", milliseconds(q.Latency))}
	}
	return nil
}

// Met reports whether a variant's answer is as accurate and as fast as the query asks. The
// time of loading does not count.
func (q *Query) Met(v *Variant) bool {
	return (q.Model == "" || q.Model == v.Model) && v.Accuracy >= q.Accuracy && (q.Latency == 0 || v.Latency <= q.Latency)
}

// Shortfall is the sum of what a variant lacks, as parts of what the query asks. For example
// 63 % in 60 ms, where 70 % in 50 ms is asked, lacks 0.1 + 0.2 = 0.3. The model does not
// count.
func (q *Query) Shortfall(v *Variant) float64 {
	short := 0.0
	if v.Accuracy < q.Accuracy {
		short = (q.Accuracy - v.Accuracy) / q.Accuracy
	}
	if q.Latency > 0 && v.Latency > q.Latency {
		short += float64(v.Latency-q.Latency) / float64(q.Latency)
	}
	return short
}
