package peers

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// refusedEarly counts the refused requests of a trial that could have been answered within the
// objective. Such a request would have executed when an instance in fact became free after the
// refusal: with the next answer, or at once if no request was unanswered. Its execution would have
// taken the median time of the requests that found no other one unanswered. The requests behind it
// would have waited longer, so not all of them would have been in time.
//
// For example, with an objective of 400 ms a request comes at 0 and is refused at 310 ms. The
// instance answers another one at 330 ms, and executions take 80 ms: it could have been answered
// at 410 ms, which is late. With an answer at 315 ms it could have been in time.
func refusedEarly(requests []load.Observed, slo time.Duration) (n int) {
	answers, alone := answered(requests)
	if len(alone) == 0 {
		return 0
	}
	slices.Sort(alone)
	takes := alone[len(alone)/2]
	for _, r := range requests {
		if !r.Sent || r.Good || r.Status == 0 {
			continue
		}
		start := r.At + r.Latency
		next, _ := slices.BinarySearchFunc(answers, start, func(a answer, t time.Duration) int { return cmp.Compare(a.at, t) })
		if next < len(answers) && answers[next].busySince <= start {
			start = answers[next].at
		}
		if start+takes <= r.At+slo {
			n++
		}
	}
	return n
}

// answer is a good answer: its time from the trial's start, and when the first of the requests that
// were answered then or later had come.
type answer struct{ at, busySince time.Duration }

// answered returns the good answers in the order of their times, and the latencies of the
// requests that found no other one unanswered.
func answered(requests []load.Observed) (answers []answer, alone []time.Duration) {
	var end time.Duration // That of the requests before, which are in the order of arrival.
	for _, r := range requests {
		done := r.At + r.Latency
		if !r.Sent {
			continue
		}
		if r.Good {
			answers = append(answers, answer{done, r.At})
			if r.At >= end {
				alone = append(alone, r.Latency)
			}
		}
		end = max(end, done)
	}
	slices.SortFunc(answers, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
	for i := len(answers) - 2; i >= 0; i-- {
		answers[i].busySince = min(answers[i].busySince, answers[i+1].busySince)
	}
	return answers, alone
}
