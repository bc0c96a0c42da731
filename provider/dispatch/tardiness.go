package dispatch

import (
	"math"
	"time"
)

const (
	// overdueTimes is how many times the 99th percentile of its function's exchanges one may
	// take before its instance is asked whether it lives.
	overdueTimes = 3
	// minOverdue is the shortest time after which an exchange is overdue: on a busy machine a
	// process may wait that long for a core.
	minOverdue = 20 * time.Millisecond
	// unseenTardiness stands for the 99th percentile while fewer than minSeen exchanges
	// were seen.
	unseenTardiness = 2.0
	minSeen         = 100
	// maxSeen halves what was seen, so that the distribution follows the machine.
	maxSeen = 4096
)

// tardiness is the distribution of how much longer exchanges take than the prediction
// for their batch, in steps of √2: step i counts ratios up to 2^(i/2). The zero value has
// seen nothing. It is a plain value; the dispatcher's lock guards it.
type tardiness struct {
	steps [24]uint16
	seen  int
}

// add counts an exchange that was predicted to take predicted and took took.
func (t *tardiness) add(predicted, took time.Duration) {
	if predicted <= 0 {
		return
	}
	step := int(math.Ceil(2 * math.Log2(float64(took)/float64(predicted))))
	t.steps[min(max(step, 0), len(t.steps)-1)]++
	if t.seen++; t.seen < maxSeen {
		return
	}
	t.seen = 0
	for i := range t.steps {
		t.steps[i] /= 2
		t.seen += int(t.steps[i])
	}
}

// percentile99 is the ratio that 99 of 100 exchanges do not exceed, at least 1.
func (t *tardiness) percentile99() float64 {
	if t.seen < minSeen {
		return unseenTardiness
	}
	beyond := t.seen / 100
	for i := len(t.steps) - 1; i > 0; i-- {
		if beyond -= int(t.steps[i]); beyond < 0 {
			return math.Exp2(float64(i) / 2)
		}
	}
	return 1
}

// overdue is after how long an exchange is overdue that was predicted to take predicted.
//
// For example, of a batch of 4 ms of which 99 of 100 take at most 8 ms: after 24 ms.
func (t *tardiness) overdue(predicted time.Duration) time.Duration {
	return max(minOverdue, time.Duration(overdueTimes*t.percentile99()*float64(predicted)))
}
