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
// taken the median time of the requests that found no other one unanswered; of the [nearest] in size, if
// size, by the request's index, is not nil. The requests behind it would have waited longer, so not all of
// them would have been in time.
//
// For example, with an objective of 400 ms a request comes at 0 and is refused at 310 ms. The
// instance answers another one at 330 ms, and executions take 80 ms: it could have been answered
// at 410 ms, which is late. With an answer at 315 ms it could have been in time.
func refusedEarly(requests []load.Observed, slo time.Duration, size func(index int) int) (n int) {
	if size == nil {
		size = func(int) int { return 0 }
	}
	answers, alone := answered(requests)
	if len(alone) == 0 {
		return 0
	}
	for _, r := range requests {
		if !r.Sent || r.Good || r.Status == 0 {
			continue
		}
		start := r.At + r.Latency
		next, _ := slices.BinarySearchFunc(answers, start, func(a answer, t time.Duration) int { return cmp.Compare(a.at, t) })
		if next < len(answers) && answers[next].busySince <= start {
			start = answers[next].at
		}
		if start+takes(alone, size, size(r.Index)) <= r.At+slo {
			n++
		}
	}
	return n
}

// nearest is the number of requests whose times say how long one of about their size takes.
const nearest = 15

// takes is the median latency of the requests whose sizes are nearest to one, of all if they have one size.
func takes(alone []load.Observed, size func(index int) int, to int) time.Duration {
	off := func(r load.Observed) int { return max(size(r.Index)-to, to-size(r.Index)) }
	slices.SortStableFunc(alone, func(a, b load.Observed) int { return cmp.Compare(off(a), off(b)) })
	last := min(nearest, len(alone)) - 1
	for last+1 < len(alone) && off(alone[last+1]) == off(alone[last]) {
		last++
	}
	var all []time.Duration
	for _, r := range alone[:last+1] {
		all = append(all, r.Latency)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// answer is a good answer: its time from the trial's start, and when the first of the requests that
// were answered then or later had come.
type answer struct{ at, busySince time.Duration }

// answered returns the good answers in the order of their times, and the good requests that found no other
// one unanswered.
func answered(requests []load.Observed) (answers []answer, alone []load.Observed) {
	var end time.Duration // That of the requests before, which are in the order of arrival.
	for _, r := range requests {
		done := r.At + r.Latency
		if !r.Sent {
			continue
		}
		if r.Good {
			answers = append(answers, answer{done, r.At})
			if r.At >= end {
				alone = append(alone, r)
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
