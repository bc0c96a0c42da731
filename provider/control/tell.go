package control

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// This file tells bodies where their shadows are, and asks whether these help. Nothing of that is
// stored: a provider that takes instances over tells them again.

const (
	// tellPause is that after a body could not be told its shadows for the first time. It doubles up to
	// tellLongest.
	tellPause, tellLongest = time.Second, 30 * time.Second
	// maxTellFailures is how many times in a row a body may refuse its shadows. It then has none for
	// alonePause, twice as long each time, up to aloneLongest.
	maxTellFailures          = 2
	alonePause, aloneLongest = 10 * time.Second, 10 * time.Minute
	// askPause is the time between two questions to a body whether its shadows help. One that does
	// not twice in a row is replaced: a connection takes milliseconds.
	askPause = time.Second
	// leaveTime is how long a shadow that is to stop waits until its body has been told.
	leaveTime = 2 * time.Second
	// unknownPair is what a body was told by an earlier provider, or may have been told.
	unknownPair = "?"
)

// told is what is known of a body and its shadows, and of a shadow that leaves.
type told struct {
	// order is what the body was told of its shadows, "" for none; telling: it is being told or asked now.
	// It is not told before tellAfter, after it could not be told tellFailures times in a row.
	order        string
	telling      bool
	tellAfter    time.Time
	tellFailures int
	// refused is how many times in a row the body lost its shadows for that, refusal is why. It has
	// none before aloneUntil.
	refused    int
	refusal    string
	aloneUntil time.Time
	// asked: the body was asked since it was told. It is not asked before askAfter. unhelpful are the
	// shadows that did not help then, counted and weights what it reported. tookOver: an earlier
	// provider started it, and it has reported nothing yet.
	asked, tookOver bool
	askAfter        time.Time
	unhelpful       []cluster.InstanceID
	counted         metrics.ShadowCounts
	weights         int64
	// leaving is why a shadow is to stop once its body does not use it, or at leavesBy; "" if it
	// is not to.
	leaving  string
	leavesBy time.Time
	// helped is how a body executes with its shadow, nil alone, pairRatio its times over those that
	// were predicted, and pairTold the ratio that the policy knows. pairFull is the size of a full batch then.
	helped              Division
	pairRatio, pairTold float64
	pairFull            int
}

// tell tells bodies which shadows they have, if that has changed. The lock is held.
func (c *pairs) tell(now time.Time, fn *function) {
	if c.shadows == nil {
		return
	}
	fn.paired = false
	for _, body := range fn.Sorted() {
		if !body.Paired || !body.serves() {
			continue
		}
		var part string
		var with []cluster.Instance
		for _, s := range fn.shadows.Sorted() {
			if s.Body == body.ID && s.There() && s.leaving == "" && (part == "" || s.Part == part) {
				part, with = s.Part, append(with, s.Instance)
			}
		}
		fn.paired = fn.paired || len(with) > 0 || body.order != "" || !body.asked
		c.inform(now, body, part, with)
	}
	for _, s := range fn.shadows.Sorted() {
		if s.leaving != "" && (now.After(s.leavesBy) || !c.used(s)) {
			c.keeper.Retire(s, s.leaving)
		}
	}
}

// follow takes over the pairs that the leader has made, as the backend shows them: the dispatcher here has to
// know how a body executes. What bodies were told is the leader's to know. The lock is held.
func (c *pairs) follow(fn *function) {
	fn.paired = false
	for _, body := range fn.Sorted() {
		if !body.Paired {
			continue
		}
		fn.paired = true
		body.order, body.tookOver = unknownPair, true
		var with Division
		for _, s := range fn.shadows.Sorted() {
			if a := body.own(); a != nil && s.Body == body.ID && s.There() {
				with = a.division(body.Config.CPU, s.Part)
			}
		}
		body.help(with)
	}
}

// leave stops a shadow as soon as its body does not use it any more. A job that it broke off would count
// as lost. The lock is held.
func (c *pairs) leave(s *instance, why string) {
	switch {
	case s.leaving != "":
	case c.shadows == nil || !s.There() || !c.used(s):
		c.keeper.Retire(s, why)
	default:
		s.leaving, s.leavesBy = why, time.Now().Add(leaveTime)
		c.wake()
	}
}

// used reports whether a shadow's body may use it.
func (c *pairs) used(s *instance) bool {
	body, ok := c.keeper.Instance(s.Body)
	return ok && body.serves() && (body.telling || body.order == unknownPair || slices.Contains(strings.Split(body.order, " "), s.Address))
}

// tellingFailed records that a body could not be told its shadows: it may know them nevertheless. A body that
// refuses them for the second time loses them, and has none for a time. The lock is held.
func (c *pairs) tellingFailed(now time.Time, body *instance, with []cluster.Instance, err error) {
	if c.keeper.Context().Err() != nil {
		return
	}
	body.order = unknownPair
	body.tellFailures++
	body.tellAfter = now.Add(backoff.Pause(body.tellFailures, tellPause, tellLongest))
	log := body.function.log.Warn().Str("instance", string(body.ID)).Err(err)
	if len(with) == 0 || body.tellFailures < maxTellFailures {
		log.Msg("could not tell an instance its shadows")
		return
	}
	body.refused, body.refusal = body.refused+1, err.Error()
	body.tellFailures, body.tellAfter, body.aloneUntil = 0, now, now.Add(backoff.Pause(body.refused, alonePause, aloneLongest))
	log.Time("until", body.aloneUntil).Msg("an instance cannot use shadows and has none for a time")
	for _, s := range with {
		if in, ok := c.keeper.Instance(s.ID); ok && in.Body == body.ID {
			c.keeper.Retire(in, "its body cannot use it")
		}
	}
	c.wake()
}

// inform is tell for one body. A body that has lost its shadow counts as alone at once.
func (c *pairs) inform(now time.Time, body *instance, part string, with []cluster.Instance) {
	var names []string
	for _, s := range with {
		names = append(names, s.Address)
	}
	order := strings.Join(append(names, part), " ")
	if len(with) == 0 {
		order = ""
		body.help(nil)
	}
	switch {
	case body.telling:
		return
	case order == body.order:
		if !now.Before(body.askAfter) {
			c.ask(body, with)
		}
		return
	case now.Before(body.tellAfter):
		return
	}
	body.unhelpful, body.asked = nil, false
	body.telling = true
	seen := body.Instance
	c.keeper.Begin(func() {
		err := c.shadows.Tell(c.keeper.Context(), seen, part, with)
		c.mu.Lock()
		defer c.mu.Unlock()
		body.telling = false
		if err != nil {
			c.tellingFailed(time.Now(), body, with, err)
			return
		}
		body.order, body.tellFailures, body.askAfter = order, 0, time.Now().Add(askPause)
		if len(with) > 0 {
			body.refused = 0
			if a := body.own(); a != nil {
				body.help(a.division(body.Config.CPU, part))
			}
		}
		c.wake()
	})
}

// ask asks a body in the background about its shadows, once if it has none any more. It counts what the
// body counted, and drops shadows that do not help for the second time. The lock is held.
func (c *pairs) ask(body *instance, with []cluster.Instance) {
	if len(with) == 0 && body.asked {
		return
	}
	body.telling = true
	seen := body.Instance
	c.keeper.Begin(func() {
		report, err := c.shadows.Look(c.keeper.Context(), seen, with)
		c.mu.Lock()
		var again []cluster.InstanceID
		for _, id := range report.Useless {
			if slices.Contains(body.unhelpful, id) {
				again = append(again, id)
			}
		}
		body.telling, body.askAfter = false, time.Now().Add(askPause)
		body.unhelpful = report.Useless
		if err == nil {
			body.asked = true
			body.reported(report)
		} else if c.keeper.Context().Err() == nil {
			body.function.log.Warn().Str("instance", string(body.ID)).Err(err).Msg("could not ask an instance for its shadows")
		}
		c.mu.Unlock()
		for _, id := range again {
			c.keeper.Lost(id, errors.New("its body cannot use it"))
		}
	})
}

// reported adds what a body counted since its last report to the function's metrics. The earlier
// provider of a body has shown the counts before the first report here.
func (in *instance) reported(r ShadowReport) {
	if in.weights = r.Weights; in.tookOver {
		in.tookOver, in.counted = false, r.Counted
		return
	}
	in.function.Metrics.AddShadowCounts(r.Counted, in.counted)
	in.counted = r.Counted
}
