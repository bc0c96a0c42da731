package retry

import (
	"fmt"
	"slices"
	"time"
)

// Lost is the number of deliveries beyond the function's attempts after which a message
// is given up without another execution. A message that was delivered and never
// acknowledged, because its provider was killed, is tried again. But a message that kills
// its provider every time must not do so for ever.
const Lost = 100

// MaxDeaths is the number of executions of a request that may end with the provider. After that
// it is given up: it probably ends the provider each time. With 2, a busy machine whose provider was killed twice
// gave up a request that was next in turn both times.
const MaxDeaths = 3

// The reasons for giving up. There are few, because they label a metric.
const (
	// Malformed: the message is not a request that can be executed.
	Malformed = "malformed"
	// Absent: there is no such function.
	Absent = "no_function"
	// Failed: every try ended in a status after which there is another try, or one exceeded a bound
	// of executions.
	Failed = "failed"
	// Crashed: the provider ended MaxDeaths times while it executed the message, or the message
	// was delivered again and again and never acknowledged.
	Crashed = "crashed"
	// Undelivered: the function answered, but the callback URL did not take
	// the answer.
	Undelivered = "callback"
	// Expired: it was a best-effort request, and there was no time to run it.
	Expired = "expired"
)

// Reasons lists the reasons for giving up.
var Reasons = []string{Malformed, Absent, Failed, Crashed, Undelivered, Expired}

// Kind is the kind of an Action.
type Kind int

// The kinds of Action.
const (
	// Done: remove the message from the queue.
	Done Kind = iota
	// Again: try once more at Action.At.
	Again
	// Dead: store the message as a dead letter.
	Dead
)

// Action says what to do with a message.
type Action struct {
	Kind Kind
	// At is the time of the next try; for Again only.
	At time.Time
	// Reason is one of the reasons above; for Dead only.
	Reason string
}

// Try is the result of one try of an invocation.
type Try struct {
	// Number counts the deliveries of the message, including this one.
	Number int
	// Status is the HTTP status of the answer. 0 stands for an error without
	// one, such as a broken connection.
	Status int
	// Absent: the provider has no such function. A function that itself
	// answers 404 is not absent.
	Absent bool
	// Malformed: the message is not a request.
	Malformed bool
	// Deaths counts the executions that ended with the provider.
	Deaths int
	// Expired: a best-effort request that waited too long. It was not executed.
	Expired bool
	// Final: the execution exceeded a bound that the next one would exceed, too.
	Final bool
	// RetryAfter is how long the function has asked to wait, 0 if it has not.
	RetryAfter time.Duration
	// Luck is random, in [0, 1): it spreads the waits of messages that failed together.
	Luck float64
}

// Hopeless reports whether to give up a message at its number-th delivery without another
// try.
func (s Settings) Hopeless(number int) bool { return number > s.Attempts+Lost }

// After decides what to do after a try that ended at now.
func (s Settings) After(now time.Time, t Try) Action {
	switch {
	case t.Malformed:
		return Action{Kind: Dead, Reason: Malformed}
	case t.Deaths >= MaxDeaths:
		return Action{Kind: Dead, Reason: Crashed}
	case t.Absent:
		return Action{Kind: Dead, Reason: Absent}
	case t.Expired:
		return Action{Kind: Dead, Reason: Expired}
	case t.Final:
		return Action{Kind: Dead, Reason: Failed}
	case t.Status != 0 && !slices.Contains(s.Codes, t.Status):
		return Action{Kind: Done}
	case t.Number >= s.Attempts:
		return Action{Kind: Dead, Reason: Failed}
	}
	longest := max(s.MaxWait, time.Millisecond)
	asked := min(t.RetryAfter, longest)
	asked = min(asked+time.Duration(t.Luck*float64(asked)/4), longest) // Later by up to a quarter.
	return Action{Kind: Again, At: now.Add(max(asked, spread(s.Wait(t.Number), t.Luck)))}
}

// Post is the result of one try to deliver a result to its callback URL.
type Post struct {
	// Number counts the tries for this result, from 1.
	Number int
	// Status is the status of the callback URL's answer, 0 if there was none.
	Status int
	// Refused: the URL, or a redirect from it, leads to a forbidden address.
	Refused bool
	// Luck is that of Try.
	Luck float64
}

// AfterPost decides what to do after a try to deliver a result that ended at now. A
// result is delivered if the answer is any 2xx, or 303, which means "accepted, see there".
// After 408, 429, 5xx or no answer there is another try. The next try would get any other
// status again, so the result is given up.
func (s Settings) AfterPost(now time.Time, p Post) Action {
	switch {
	case p.Refused:
		return Action{Kind: Dead, Reason: Undelivered}
	case p.Status >= 200 && p.Status < 300, p.Status == 303:
		return Action{Kind: Done}
	case p.Status != 0 && p.Status < 500 && p.Status != 408 && p.Status != 429, p.Number >= s.Attempts:
		return Action{Kind: Dead, Reason: Undelivered}
	}
	return Action{Kind: Again, At: now.Add(spread(s.Wait(p.Number), p.Luck))}
}

// String returns the action as text for logs and tests.
func (a Action) String() string {
	switch a.Kind {
	case Done:
		return "done"
	case Again:
		return "again at " + a.At.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("dead: %s", a.Reason)
}
