// Package health judges whether the targets of requests are well: instances, workers of sets and
// replicas of the provider. [Target] is the state of one of them, [Group] compares the answers of
// those that serve the same requests. Both are pure: a driver tells what it has seen and at what
// time, asks questions (package probe) and sends requests where the state says.
//
//	Healthy ── an answer is overdue ──► Suspect or Aside ── silence ──► Silent ── longer ──► Gone
//	   ▲                                      │                           │
//	   ├──────────── it answers ──────────────┴───────────────────────────┘
//	   │
//	   ├── fails more than its siblings ──► Ejected ── a pause ──► Probing ── fails again ──► Ejected
//	   └───────────────────── one good answer ────────────────────────┘       a third time: Gone
//
// A target without siblings that fails for long is Gone, too, once: its replacement shows whether the
// cause is the target.
//
// Begin with [State].
package health

import "time"

// State is how a target is.
type State uint8

// The states. A target serves in Healthy, Suspect and Probing.
const (
	// Healthy: nothing is known against it.
	Healthy State = iota
	// Suspect: an answer is overdue. It is asked whether it lives, and serves on.
	Suspect
	// Aside is Suspect for a target in whose place others serve until it answers.
	Aside
	// Silent: it has not answered a question for too long, and serves nothing until it does.
	Silent
	// Ejected: it answers, but with errors that its siblings do not have. It serves nothing for a
	// time.
	Ejected
	// Probing: that time is over. One request at a time shows whether it is well again.
	Probing
	// Finishing: it was put aside and answers again. It serves once what it has is done.
	Finishing
	// Gone: it is lost, or was retired, and does not come back.
	Gone
)

// String returns the state's name in lower case.
func (s State) String() string {
	return [...]string{"healthy", "suspect", "aside", "silent", "ejected", "probing", "finishing", "gone"}[s]
}

// Failing reports whether an answer with that status and header is an error of the target that gave
// it: any 5xx, except 501 and 505, which the request causes, and an answer with Retry-After, which the
// load causes.
func Failing(status int, header map[string][]string) bool {
	return status >= 500 && status != 501 && status != 505 && len(header["Retry-After"]) == 0
}

// Rules say how long a target may be silent.
type Rules struct {
	// Eject is the silence after which a target is Silent, Lose the one after which it is Gone; 0
	// for never.
	Eject, Lose time.Duration
}

// Target is the state of one target. The zero value is Healthy.
type Target struct {
	state State
	// until is the end of its time as Ejected, zero if it was not ejected. ejections counts how
	// often it was in a row, and healed is when it last became Healthy after that.
	until     time.Time
	ejections int
	healed    time.Time
	answers   answers
	// why it is Gone although it answers.
	why error
}

// State returns the state.
func (t *Target) State() State { return t.state }

// Why returns why a target is Gone that answers: [ErrFailing] or [ErrAlone], otherwise nil.
func (t *Target) Why() error { return t.why }

// Serves reports whether new requests may go to the target.
func (t *Target) Serves() bool {
	return t.state == Healthy || t.state == Suspect || t.state == Probing
}

// Asking reports whether the target is being asked whether it lives.
func (t *Target) Asking() bool {
	return t.state == Suspect || t.state == Aside || t.state == Silent
}

// Doubt notes that an answer is overdue, and reports whether the driver must begin to ask. spare
// says that others can serve in the target's place until it has answered.
func (t *Target) Doubt(spare bool) (ask bool) {
	ask = !t.Asking() && t.state != Gone
	switch {
	case t.state == Gone || t.state == Silent:
	case spare || t.state != Healthy && t.state != Suspect:
		t.state = Aside
	default:
		t.state = Suspect
	}
	return ask
}

// Heard notes that a target has answered a question. busy says that it has requests of before.
func (t *Target) Heard(now time.Time, busy bool) {
	switch {
	case !t.Asking():
	case !t.until.IsZero() && now.Before(t.until):
		t.state = Ejected
	case !t.until.IsZero():
		t.state = Probing
	case busy && t.state != Suspect:
		t.state = Finishing
	default:
		t.state = Healthy
	}
}

// Unheard notes that a target that is being asked has not answered for silence.
func (t *Target) Unheard(silence time.Duration, r Rules) {
	switch {
	case !t.Asking():
	case r.Lose > 0 && silence >= r.Lose:
		t.state = Gone
	case silence >= r.Eject:
		t.state = Silent
	}
}

// probed reports whether the next answer shows if an ejected target is well again.
func (t *Target) probed(now time.Time) bool {
	return t.state == Probing || t.state == Aside && !t.until.IsZero() && !now.Before(t.until)
}

// Finished notes that a target has no request any more.
func (t *Target) Finished() {
	if t.state == Finishing {
		t.state = Healthy
	}
}

// Retire notes that a target does not come back.
func (t *Target) Retire() { t.state = Gone }
