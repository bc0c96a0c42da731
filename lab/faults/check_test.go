package faults

import (
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// forged is a request that is due at a time, with answers.
func forged(async bool, at time.Duration, answers ...Answer) Request {
	return Request{Function: "f", Async: async, Intended: at, Sent: at, Want: 7, SLO: 50 * ms, Bound: 50*ms + time.Second, Answers: answers}
}

// Forged histories: each has one request, at 1 s, for which the answer 7 is right.
func TestCheck(t *testing.T) {
	right, other := Answer{At: 1010 * ms, Status: 200, Hash: 7}, Answer{At: 1010 * ms, Status: 200, Hash: 8}
	late, never := Answer{At: 1900 * ms, Status: 200, Hash: 7}, Answer{At: 2051 * ms, Status: 200, Hash: 7}
	refusal, lateRefusal := Answer{At: 1010 * ms, Status: 503}, Answer{At: 2051 * ms, Status: 503}
	accepted := Answer{At: 1005 * ms, Status: 202}
	back := Answer{At: 9000 * ms, Status: 200, Hash: 7, Callback: true}
	backOther := Answer{At: 9000 * ms, Status: 200, Hash: 8, Callback: true}
	backFailed := Answer{At: 9000 * ms, Status: 500, Callback: true}
	one := func(v Verdict) Verdict { v.Requests = 1; return v }
	for name, c := range map[string]struct {
		request Request
		want    Verdict
		within  bool
	}{
		"answered":                 {forged(false, 1000*ms, right), Verdict{Accepted: 1}, true},
		"late":                     {forged(false, 1000*ms, late), Verdict{Accepted: 1}, false},
		"much too late":            {forged(false, 1000*ms, never), Verdict{Accepted: 1, Unbounded: 1}, false},
		"refused":                  {forged(false, 1000*ms, refusal), Verdict{Accepted: 1, Failed: 1}, false},
		"refused much too late":    {forged(false, 1000*ms, lateRefusal), Verdict{Accepted: 1, Failed: 1, Unbounded: 1}, false},
		"an answer to another":     {forged(false, 1000*ms, other), Verdict{Accepted: 1, Wrong: 1}, false},
		"an answer twice":          {forged(false, 1000*ms, right, right), Verdict{Accepted: 1, Wrong: 1}, false},
		"a callback of no request": {forged(false, 1000*ms, right, back), Verdict{Accepted: 1, Wrong: 1}, false},
		"none":                     {forged(false, 1000*ms), Verdict{Accepted: 1, Lost: 1}, false},
		"called back":              {forged(true, 1000*ms, accepted, back), Verdict{Accepted: 1}, true},
		"a callback missing":       {forged(true, 1000*ms, accepted), Verdict{Accepted: 1, Lost: 1}, false},
		"a callback twice":         {forged(true, 1000*ms, accepted, back, back), Verdict{Accepted: 1, Repeated: 1}, true},
		"a callback to another":    {forged(true, 1000*ms, accepted, backOther), Verdict{Accepted: 1, Wrong: 1}, false},
		"a second one to another":  {forged(true, 1000*ms, accepted, back, backOther), Verdict{Accepted: 1, Wrong: 1}, true},
		"a callback of a failure":  {forged(true, 1000*ms, accepted, backFailed), Verdict{Accepted: 1, Failed: 1}, false},
		"not accepted":             {forged(true, 1000*ms, refusal), Verdict{Failed: 1}, false},
		"called back unaccepted":   {forged(true, 1000*ms, refusal, back), Verdict{Failed: 1}, false},
		"callback before the 202":  {forged(true, 1000*ms, back, accepted), Verdict{Accepted: 1}, true},
		"no word on acceptance":    {forged(true, 1000*ms), Verdict{}, false},
	} {
		h := History{Requests: []Request{c.request}}
		got := Check(&h)
		if example := got.Example; (example != nil) != (c.want.Lost+c.want.Wrong+c.want.Unbounded > 0) {
			t.Errorf("%s: example %+v", name, example)
		}
		if got.Example = nil; name == "no word on acceptance" {
			c.want.Accepted = 0
		}
		if got != one(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, one(c.want))
		}
		if got := c.request.within(); got != c.within {
			t.Errorf("%s: within is %v", name, got)
		}
	}
}

// What was not sent, and what found no connection, was promised no answer; it is counted
// all the same. A request that was sent late counts from its intended time.
func TestNothingIsLeftOut(t *testing.T) {
	unsent, refused, sentLate := forged(false, 0), forged(false, 0), forged(false, 0, Answer{At: 1100 * ms, Status: 200, Hash: 7})
	unsent.Unsent, refused.Refused, sentLate.Sent = true, true, 1090*ms
	h := History{Requests: []Request{unsent, refused, sentLate}, Strays: []Stray{{"/1/2"}}}
	v := Check(&h)
	if v.Requests != 3 || v.Accepted != 1 || v.Unsent != 1 || v.Refused != 1 || v.Unbounded != 1 || v.SentLate != 1 || v.Wrong != 1 || v.Lost != 0 {
		t.Errorf("%+v", v)
	}
	if during, outside := h.Shares(0, time.Second); during.all != 3 || during.within != 0 || outside.all != 0 {
		t.Errorf("%+v, %+v", during, outside)
	}
}

// steady is a load of two functions with a request each 50 ms, of which bad says so are
// not answered in time.
func steady(until time.Duration, bad func(at time.Duration, function string) bool) *History {
	h := &History{}
	for at := time.Duration(0); at < until; at += 50 * ms {
		for _, function := range []string{"f", "g"} {
			r := forged(false, at, Answer{At: at + 10*ms, Status: 200, Hash: 7})
			if r.Function = function; bad(at, function) {
				r.Answers[0].At = at + 60*ms
			}
			h.Requests = append(h.Requests, r)
		}
	}
	return h
}

func TestRecovered(t *testing.T) {
	h := steady(5*time.Second, func(at time.Duration, function string) bool {
		return function == "f" && at >= time.Second && at < 1900*ms || function == "g" && at == 2100*ms
	})
	for _, c := range []struct {
		after, want time.Duration
	}{{0, 0}, {time.Second, 1250 * ms}, {1900 * ms, 250 * ms}, {3 * time.Second, 0}} {
		if got, ok := h.Recovered(c.after, 5*time.Second); got != c.want || !ok {
			t.Errorf("after %v: %v, %v, want %v", c.after, got, ok, c.want)
		}
	}
	if got, ok := h.Recovered(time.Second, 2*time.Second); ok {
		t.Errorf("recovered after %v without a good window", got)
	}
	during, outside := h.Shares(time.Second, 2*time.Second)
	if during != (Share{22, 40}) || outside != (Share{159, 160}) || during.percent() != 55 {
		t.Errorf("%+v %+v", during, outside)
	}
}

// A window in which a function was not asked says nothing of it, and the fault's own
// requests neither.
func TestRecoveredNeedsEveryFunction(t *testing.T) {
	h := steady(2*time.Second, func(time.Duration, string) bool { return false })
	kept := h.Requests[:0]
	for _, r := range h.Requests {
		if r.Function == "f" || r.Intended < 500*ms || r.Intended >= time.Second {
			kept = append(kept, r)
		}
	}
	guest := forged(false, 1100*ms)
	guest.Guest, guest.Function = true, "guest"
	h.Requests = append(kept, guest)
	if got, ok := h.Recovered(500*ms, 2*time.Second); got != 500*ms || !ok {
		t.Errorf("%v %v", got, ok)
	}
	if v := Check(h); v.Lost != 1 {
		t.Errorf("the guest that has no answer is not lost: %+v", v)
	}
}

func TestHistoryIsWritten(t *testing.T) {
	h := History{Requests: []Request{forged(true, time.Second, Answer{At: 2 * time.Second, Status: 202})}}
	var out strings.Builder
	if err := h.write(&out, "stopped", 2); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"fault":"stopped"`, `"run":2`, `"intended_ns":1000000000`, `"status":202`, `"want":"0000000000000007"`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %s in %s", part, out.String())
		}
	}
}
