package faults

import (
	"cmp"
	"slices"
	"time"
)

// Verdict is what a history shows, in numbers of requests.
type Verdict struct {
	// Requests is how many there are, Accepted how many somebody promised to answer.
	Requests, Accepted int
	// Lost were accepted and never answered or called back. Wrong are answers that are
	// not their requests', or that come on top of one. Unbounded were answered, but later
	// than they must be.
	Lost, Wrong, Unbounded int
	// SentLate is how many of the unbounded ones the generator itself sent later than their
	// objective.
	SentLate int
	// Failed were answered or called back with a status that is no success, Refused found
	// no connection, Unsent were not sent.
	Failed, Refused, Unsent int
	// Repeated were called back more than once, with the right answer. The queue promises
	// "at least once", so this is no defect where a provider dies.
	Repeated int
	// Example is the first request that was lost, wrong or unbounded.
	Example *Request
}

// Check judges a history. Every request counts: one that the generator sent late counts
// from its intended time.
func Check(h *History) (v Verdict) {
	v.Wrong = len(h.Strays)
	for i := range h.Requests {
		r := &h.Requests[i]
		before := v.Lost + v.Wrong + v.Unbounded
		v.add(r)
		if v.Example == nil && v.Lost+v.Wrong+v.Unbounded > before {
			v.Example = r
		}
	}
	return v
}

func (v *Verdict) add(r *Request) {
	v.Requests++
	direct, callbacks := r.divided()
	for i, a := range direct {
		switch {
		case i > 0: // The one answer has been there.
			v.Wrong++
		case a.At-r.Intended > r.Bound:
			v.Unbounded++
			if r.Sent-r.Intended > r.SLO {
				v.SentLate++
			}
		}
		if i == 0 && !r.Async && a.good() && a.Hash != r.Want {
			v.Wrong++
		}
	}
	accepted := !r.Unsent && !r.Refused
	failed := len(direct) > 0 && !direct[0].good()
	if r.Async {
		// Without a status nobody has promised anything: the queue may have it, or not.
		accepted = len(direct) > 0 && direct[0].good()
		failed = failed || slices.ContainsFunc(callbacks, func(a Answer) bool { return !a.good() })
		v.callbacks(r, callbacks)
	}
	switch {
	case r.Unsent:
		v.Unsent++
	case r.Refused:
		v.Refused++
	case failed:
		v.Failed++
	}
	if !accepted {
		return
	}
	v.Accepted++
	if r.Async && len(callbacks) == 0 || !r.Async && len(direct) == 0 {
		v.Lost++
	}
}

// callbacks judges those of one request.
func (v *Verdict) callbacks(r *Request, callbacks []Answer) {
	right := 0
	for _, a := range callbacks {
		switch {
		case a.good() && a.Hash != r.Want:
			v.Wrong++
		case a.good():
			right++
		}
	}
	if right > 1 {
		v.Repeated++
	}
}

// divided are the answers to the request itself and the callbacks. An answer of another
// kind than the request's is wrong, and counts as one too many.
func (r *Request) divided() (direct, callbacks []Answer) {
	for _, a := range r.Answers {
		if a.Callback && r.Async {
			callbacks = append(callbacks, a)
		} else {
			direct = append(direct, a)
		}
	}
	return direct, callbacks
}

// within reports whether a request was answered rightly and in time. One that is to be
// answered later must be accepted in the time that it must have an answer in, and be
// called back rightly, whenever that is.
func (r *Request) within() bool {
	direct, callbacks := r.divided()
	if len(direct) != 1 || !direct[0].good() {
		return false
	}
	took := direct[0].At - r.Intended
	if !r.Async {
		return direct[0].Hash == r.Want && took <= r.SLO
	}
	return took <= r.Bound && slices.ContainsFunc(callbacks, func(a Answer) bool { return a.good() && a.Hash == r.Want })
}

// window is over which all requests must be within the objective to count as recovered.
const window = 250 * time.Millisecond

// Recovered is how long after a time, in whole windows, there is a window in which every
// function was asked and every request was answered within the objective; false if there
// is none before end.
func (h *History) Recovered(after, end time.Duration) (time.Duration, bool) {
	requests := slices.Clone(h.Requests)
	requests = slices.DeleteFunc(requests, func(r Request) bool { return r.Guest })
	slices.SortStableFunc(requests, func(a, b Request) int { return cmp.Compare(a.Intended, b.Intended) })
	functions := map[string]bool{}
	for i := range requests {
		functions[requests[i].Function] = true
	}
	next, _ := slices.BinarySearchFunc(requests, after, func(r Request, at time.Duration) int { return cmp.Compare(r.Intended, at) })
	for from := after; from+window <= end; from += window {
		asked, well := map[string]bool{}, true
		for ; next < len(requests) && requests[next].Intended < from+window; next++ {
			asked[requests[next].Function] = true
			well = well && requests[next].within()
		}
		if well && len(functions) > 0 && len(asked) == len(functions) {
			return from - after, true
		}
	}
	return 0, false
}

// Share counts requests and those within the objective.
type Share struct{ within, all int }

// percent is the share of those within; all, where there are none.
func (s Share) percent() float64 {
	if s.all == 0 {
		return 100
	}
	return 100 * float64(s.within) / float64(s.all)
}

func (s Share) plus(o Share) Share { return Share{s.within + o.within, s.all + o.all} }

// Shares counts the requests that were due from a time until another, and all others.
func (h *History) Shares(from, until time.Duration) (during, outside Share) {
	for i := range h.Requests {
		r := &h.Requests[i]
		if r.Guest {
			continue
		}
		of := &outside
		if r.Intended >= from && r.Intended < until {
			of = &during
		}
		if of.all++; r.within() {
			of.within++
		}
	}
	return during, outside
}
