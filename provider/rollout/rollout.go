// Package rollout decides how a new revision of a function takes the place of the present one: when its share of
// the requests rises, when it is promoted, and when it is rolled back, with the reason. It sends no request, counts
// nothing and deploys nothing; package provider does. Begin reading at [State.Decide].
//
// # The test
//
// Each side (the present revision and the candidate) has two rates: requests that missed their objective, and
// requests that failed. A confidence sequence bounds each rate at all times together ([Interval]), so looking ten times
// a second does not make luck more likely. The candidate is rolled back when its lower bound is above the upper bound
// of the present revision, and promoted when its upper bound is within the margin of the lower bound of the present
// revision. [Alpha] is divided among the sides, the rates and the steps: a candidate that is as good as the present
// revision is rolled back with a probability of at most Alpha, and one that is worse by more than the margin is promoted
// with at most that. This holds if requests of a side miss independently of each other. A stall of the machine makes
// many miss at once, so misses must also come in [minWindows] different windows of time.
package rollout

import (
	"cmp"
	"fmt"
	"time"
)

// The bounds of the decision.
const (
	// Alpha is the maximum probability, over a whole rollout, that luck alone promotes, and that luck alone rolls back.
	Alpha = 0.01
	// provingRequests is the number of requests that a candidate answers one at a time before it gets its share, and
	// provingTime the shortest time of that.
	provingRequests = 20
	provingTime     = 2 * time.Second
	// provingSlack is how much larger the candidate's part of missed requests may be meanwhile: its first executions
	// are slower.
	provingSlack = 0.1
	// window is the length of the windows that are counted, and minWindows the number of them with misses that
	// rolls back.
	window     = 500 * time.Millisecond
	minWindows = 3
	// minCompared is the number of mirrored requests whose answers are compared before a promotion.
	minCompared = 20
	// troublePatience is how long a candidate without a ready instance may report a problem.
	troublePatience = 2 * time.Second
	// maxLosses is how often a candidate may lose its last ready instance.
	maxLosses = 3
)

// Plan is what a deployment asks for.
type Plan struct {
	// Steps are the shares of requests in percent, rising. Without one, only requests that ask for the candidate
	// get it, and nothing but the user promotes it.
	Steps []int
	// Mirror is the part of the requests in percent whose copies the candidate answers as well.
	Mirror int
	// Margin is by how much the candidate's rates may be higher, as a part of 1.
	Margin float64
	// MaxDifferent is the maximum part of the mirrored requests whose answers may differ, as a part of 1.
	MaxDifferent float64
	// Patience is how long the candidate's first instance may take.
	Patience time.Duration
}

// Side counts one revision's requests.
type Side struct {
	// Answered are all, Missed those that failed or were answered after the objective, and Failed those with an
	// error.
	Answered uint64 `json:"answered"`
	Missed   uint64 `json:"missed"`
	Failed   uint64 `json:"failed"`
}

// since returns what came after an earlier count.
func (s Side) since(before Side) Side {
	return Side{s.Answered - before.Answered, s.Missed - before.Missed, s.Failed - before.Failed}
}

// Plus returns the counts of two replicas together.
func (s Side) Plus(other Side) Side {
	return Side{s.Answered + other.Answered, s.Missed + other.Missed, s.Failed + other.Failed}
}

// Seen is what is known of a rollout at one time. Counts are since it began.
type Seen struct {
	// Ready: the candidate has an instance that can answer. Problem is what its function reports, "" for nothing.
	Ready   bool
	Problem string
	// NoRoom: the problem is that no node has room for it, which may pass.
	NoRoom bool
	// Stable and Candidate are the counts of both sides.
	Stable, Candidate Side
	// Compared are the mirrored requests whose answers were compared, Different those whose answers differ.
	Compared, Different uint64
}

// Phase is how far a rollout is.
type Phase string

// The phases of a rollout.
const (
	// Starting: the candidate has no instance yet.
	Starting Phase = "starting"
	// Proving: it answers one request at a time.
	Proving Phase = "proving"
	// Sharing: it gets the share of a step.
	Sharing Phase = "sharing"
	// Promoting: its deployment takes the present one's place.
	Promoting Phase = "promoting"
)

// State is a rollout's state. The zero value is not valid; see [Begin].
type State struct {
	Phase Phase
	// Step is the index in Plan.Steps.
	Step int
	// Began is when the rollout began, Since when the phase or step did.
	Began, Since time.Time

	// from are the counts at Since.
	from Seen
	// last are the counts at the latest decision. windows is the number of windows since Since in which the candidate
	// missed requests, and counted the end of the latest.
	last    Side
	windows int
	counted time.Time
	// troubled is since when the candidate reports a problem without a ready instance, zero for not.
	troubled time.Time
	// ready: it had a ready instance at the latest decision. losses counts how often it lost the last one.
	ready  bool
	losses int
}

// Kind is what to do.
type Kind int

// The kinds of actions.
const (
	// Hold changes nothing.
	Hold Kind = iota
	// Advance begins the state's phase or step.
	Advance
	// Promote makes the candidate the present revision.
	Promote
	// RollBack removes the candidate.
	RollBack
)

// Cause is what kind of reason a candidate is removed for.
type Cause string

// The causes of removals.
const (
	// Failures: more of its requests failed.
	Failures Cause = "failures"
	// Misses: more of its requests missed the objective.
	Misses Cause = "misses"
	// Differences: its answers to mirrored requests differ.
	Differences Cause = "differences"
	// NoInstance: it has no instance that answers.
	NoInstance Cause = "no_instance"
)

// Action is a decision. Why is its reason, or what a rollout waits for: a clause without a final period. Cause is that of
// a removal.
type Action struct {
	Kind  Kind
	Why   string
	Cause Cause
}

// Begin returns the state of a rollout that begins.
func Begin(now time.Time) State { return State{Phase: Starting, Began: now, Since: now} }

// Resume returns the state of a rollout that another replica has decided about until now: the step begins anew, with
// the counts in seen. A promotion that has not taken place needs its last step's evidence again.
func Resume(phase Phase, step int, began time.Time, p Plan, seen Seen, now time.Time) State {
	s := Begin(began)
	if phase == Promoting {
		phase = Sharing
	}
	s.enter(phase, max(0, min(step, len(p.Steps)-1)), seen, now)
	s.last, s.ready = seen.Candidate, phase != Starting
	return s
}

// Share returns the part of the requests in percent that the candidate gets.
func (s State) Share(p Plan) int {
	if s.Phase == Starting || s.Phase == Proving || len(p.Steps) == 0 {
		return 0
	}
	return p.Steps[min(s.Step, len(p.Steps)-1)]
}

// Decide says what to do now.
func (s State) Decide(p Plan, seen Seen, now time.Time) (State, Action) {
	if s.Phase == Promoting {
		return s, Action{Kind: Hold, Why: "the new revision takes the place of the present one"}
	}
	s.count(seen, now)
	if cause, why := s.condemn(p, seen, now); why != "" {
		return s, Action{Kind: RollBack, Why: why, Cause: cause}
	}
	switch s.Phase {
	case Starting:
		if !seen.Ready {
			return s, Action{Kind: Hold, Why: fmt.Sprintf("waiting for its first instance since %s, at most %s", rounded(now.Sub(s.Began)), p.Patience)}
		}
		s.enter(Proving, 0, seen, now)
		return s, Action{Kind: Advance, Why: "its first instance is ready, so it gets one request at a time"}
	case Proving:
		return s.prove(p, seen, now)
	}
	return s.share(p, seen, now)
}

// enter begins a phase or step.
func (s *State) enter(phase Phase, step int, seen Seen, now time.Time) {
	s.Phase, s.Step, s.Since, s.from, s.windows, s.counted = phase, step, now, seen, 0, time.Time{}
}

// count notes the windows in which the candidate missed requests.
func (s *State) count(seen Seen, now time.Time) {
	if seen.Candidate.Missed > s.last.Missed && now.Sub(s.counted) >= window {
		s.windows++
		s.counted = now
	}
	s.last = seen.Candidate
}

// condemn returns why the candidate must go, "" if nothing is against it.
func (s *State) condemn(p Plan, seen Seen, now time.Time) (cause Cause, why string) {
	if s.Phase == Starting {
		return NoInstance, s.neverReady(p, seen, now)
	}
	if why := s.down(seen, now); why != "" {
		return NoInstance, why
	}
	a := p.alpha()
	got := seen.Candidate.since(s.from.Candidate)
	if s.windows >= minWindows {
		// The present revision's evidence is from the whole rollout: there are few requests in a short phase.
		if worse(got.Failed, got.Answered, seen.Stable.Failed, seen.Stable.Answered, a) {
			return Failures, fmt.Sprintf("%d of its %d requests failed, of the present revision's %d of %d",
				got.Failed, got.Answered, seen.Stable.Failed, seen.Stable.Answered)
		}
		if worse(got.Missed, got.Answered, seen.Stable.Missed, seen.Stable.Answered, a) {
			return Misses, fmt.Sprintf("%d of its %d requests missed the objective, of the present revision's %d of %d",
				got.Missed, got.Answered, seen.Stable.Missed, seen.Stable.Answered)
		}
	}
	if p.Mirror > 0 {
		if low, _ := Interval(seen.Different, seen.Compared, a); low > p.MaxDifferent {
			return Differences, fmt.Sprintf("%d of its %d answers to mirrored requests differ from those of the present revision, and %s may",
				seen.Different, seen.Compared, percent(p.MaxDifferent))
		}
	}
	return "", ""
}

// down returns why a candidate that had a ready instance must go because it has none, "" if it may have one again. One
// that is idle and reports no problem may.
func (s *State) down(seen Seen, now time.Time) string {
	if s.ready && !seen.Ready && seen.Problem != "" {
		s.losses++
	}
	if seen.Ready || seen.Problem != "" {
		s.ready = seen.Ready
	}
	switch {
	case seen.Ready:
		s.troubled = time.Time{}
	case seen.Problem != "" && s.troubled.IsZero():
		s.troubled = now
	}
	if s.losses >= maxLosses || !s.troubled.IsZero() && now.Sub(s.troubled) >= troublePatience {
		return "it has lost its instances: " + cmp.Or(seen.Problem, "they do not start again")
	}
	return ""
}

// neverReady returns why a candidate without a ready instance must go, "" if it may still start.
func (s *State) neverReady(p Plan, seen Seen, now time.Time) string {
	if seen.Ready {
		return ""
	}
	if seen.Problem == "" || seen.NoRoom {
		s.troubled = time.Time{}
	} else if s.troubled.IsZero() {
		s.troubled = now
	}
	if !s.troubled.IsZero() && now.Sub(s.troubled) >= troublePatience {
		return "it has no ready instance: " + seen.Problem
	}
	if now.Sub(s.Began) >= p.Patience && seen.Problem != "" {
		return fmt.Sprintf("it has no ready instance after %s: %s", p.Patience, seen.Problem)
	}
	if now.Sub(s.Began) >= p.Patience {
		return fmt.Sprintf("it has no ready instance after %s", p.Patience)
	}
	return ""
}

// prove ends the first phase of a candidate once it has answered some requests well.
func (s State) prove(p Plan, seen Seen, now time.Time) (State, Action) {
	got := seen.Candidate.since(s.from.Candidate)
	if got.Answered < provingRequests || now.Sub(s.Since) < provingTime {
		return s, Action{Kind: Hold, Why: fmt.Sprintf("it has answered %d requests, one at a time; it needs %d", got.Answered, provingRequests)}
	}
	if part(got.Missed, got.Answered) > part(seen.Stable.Missed, seen.Stable.Answered)+provingSlack {
		return s, Action{Kind: Hold, Why: fmt.Sprintf("%d of its first %d requests missed the objective, so it still gets one at a time", got.Missed, got.Answered)}
	}
	s.enter(Sharing, 0, seen, now)
	if len(p.Steps) == 0 {
		return s, Action{Kind: Advance, Why: "it has answered its first requests, and now gets those that ask for it"}
	}
	return s, Action{Kind: Advance, Why: fmt.Sprintf("it has answered its first requests, and now gets %d %% of them", p.Steps[0])}
}

// share ends a step once the candidate is known to be no worse.
func (s State) share(p Plan, seen Seen, now time.Time) (State, Action) {
	if len(p.Steps) == 0 {
		return s, Action{Kind: Hold, Why: "it gets the requests that ask for it, until you promote or abort it"}
	}
	got, present := seen.Candidate.since(s.from.Candidate), seen.Stable.since(s.from.Stable)
	figures := fmt.Sprintf("at %d %%, %s of its %d requests were in time and %s failed; of the present revision's %d, %s and %s",
		p.Steps[s.Step], percent(1-part(got.Missed, got.Answered)), got.Answered, percent(part(got.Failed, got.Answered)),
		present.Answered, percent(1-part(present.Missed, present.Answered)), percent(part(present.Failed, present.Answered)))
	if got.Answered == 0 {
		return s, Action{Kind: Hold, Why: fmt.Sprintf("no request came to it at %d %%", p.Steps[s.Step])}
	}
	a := p.alpha()
	if p.Steps[s.Step] == 100 { // Nothing is left to compare with but the steps before.
		present = seen.Stable
	}
	if !noWorse(got.Missed, got.Answered, present.Missed, present.Answered, p.Margin, a) ||
		!noWorse(got.Failed, got.Answered, present.Failed, present.Answered, p.Margin, a) {
		return s, Action{Kind: Hold, Why: figures + fmt.Sprintf("; that is too little to say that it is no worse by more than %s", percent(p.Margin))}
	}
	if p.Mirror > 0 && (seen.Compared < minCompared || part(seen.Different, seen.Compared) > p.MaxDifferent) {
		return s, Action{Kind: Hold, Why: fmt.Sprintf("%s; %d answers were compared and %d differ", figures, seen.Compared, seen.Different)}
	}
	if s.Step+1 < len(p.Steps) {
		s.enter(Sharing, s.Step+1, seen, now)
		return s, Action{Kind: Advance, Why: fmt.Sprintf("%s; it now gets %d %%", figures, p.Steps[s.Step])}
	}
	s.enter(Promoting, s.Step, seen, now)
	return s, Action{Kind: Promote, Why: figures}
}

// Promote returns the state of a rollout that a user promotes.
func (s State) Promote(seen Seen, now time.Time) State {
	s.enter(Promoting, s.Step, seen, now)
	return s
}

// alpha is the error probability of one confidence sequence: a candidate is judged by two rates with two sides each and by
// the compared answers, in each step and while it proves itself.
func (p Plan) alpha() float64 { return Alpha / float64(5*(len(p.Steps)+1)) }

// part returns k of n, 0 of nothing.
func part(k, n uint64) float64 {
	if n == 0 {
		return 0
	}
	return float64(k) / float64(n)
}

func percent(part float64) string { return fmt.Sprintf("%.4g %%", 100*part) }

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
