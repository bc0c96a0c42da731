package retry

import (
	"fmt"
	"slices"
	"time"
)

// Lost is how many more times than its function's attempts a message may be
// handed out before it is given up unexecuted. A message that is handed out and
// never answered for (its provider was killed) is tried again; but one that
// kills its provider every time must not do so for ever.
const Lost = 100

// The reasons for giving up. They are few, so that they can label a metric.
const (
	// Malformed: the message is no request that could be executed.
	Malformed = "malformed"
	// Absent: there is no such function.
	Absent = "no_function"
	// Failed: every try ended in a status that is tried again.
	Failed = "failed"
	// Crashed: the message was handed out again and again and never answered
	// for.
	Crashed = "crashed"
	// Undelivered: the function answered, but the callback URL did not take
	// the answer.
	Undelivered = "callback"
)

// Reasons lists them.
var Reasons = []string{Malformed, Absent, Failed, Crashed, Undelivered}

// Kind is what is to be done.
type Kind int

// The kinds of Action.
const (
	// Done: the message has been dealt with.
	Done Kind = iota
	// Again: try once more at Action.At.
	Again
	// Dead: put it among the dead letters.
	Dead
)

// Action is what is to be done with a message.
type Action struct {
	Kind Kind
	// At is when to try again; for Again only.
	At time.Time
	// Reason is one of the reasons above; for Dead only.
	Reason string
}

// Try is how one try of an invocation ended.
type Try struct {
	// Number counts the times that the message was handed out, this one
	// included.
	Number int
	// Status is the HTTP status of the answer. 0 stands for an error without
	// one, such as a broken connection.
	Status int
	// Absent: the provider has no such function. A function that itself
	// answers 404 is not absent.
	Absent bool
	// Malformed: the message is no request.
	Malformed bool
}

// Hopeless reports whether a message that has been handed out so often is to be
// given up without another try.
func (s Settings) Hopeless(number int) bool { return number > s.Attempts+Lost }

// After decides after a try that ended at now.
func (s Settings) After(now time.Time, t Try) Action {
	switch {
	case t.Malformed:
		return Action{Kind: Dead, Reason: Malformed}
	case t.Absent:
		return Action{Kind: Dead, Reason: Absent}
	case t.Status != 0 && !slices.Contains(s.Codes, t.Status):
		return Action{Kind: Done}
	case t.Number >= s.Attempts:
		return Action{Kind: Dead, Reason: Failed}
	}
	return Action{Kind: Again, At: now.Add(s.Wait(t.Number))}
}

// Post is how one try to hand a result to its callback URL ended.
type Post struct {
	// Number counts the tries for this result, from 1.
	Number int
	// Status is what the callback URL answered, 0 if nothing did.
	Status int
	// Refused: the URL, or a redirect from it, leads where no callback may go.
	Refused bool
}

// AfterPost decides after a try to deliver a result. It is delivered if the
// answer is any 2xx, or 303, which says "taken, look over there". Another status
// below 500 but for 408 and 429 would be answered the next time, too.
func (s Settings) AfterPost(now time.Time, p Post) Action {
	switch {
	case p.Refused:
		return Action{Kind: Dead, Reason: Undelivered}
	case p.Status >= 200 && p.Status < 300, p.Status == 303:
		return Action{Kind: Done}
	case p.Status != 0 && p.Status < 500 && p.Status != 408 && p.Status != 429, p.Number >= s.Attempts:
		return Action{Kind: Dead, Reason: Undelivered}
	}
	return Action{Kind: Again, At: now.Add(s.Wait(p.Number))}
}

// String is for logs and tests.
func (a Action) String() string {
	switch a.Kind {
	case Done:
		return "done"
	case Again:
		return "again at " + a.At.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("dead: %s", a.Reason)
}
