package provider

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/provider/rollout"
)

// standPatience is how long a replica goes on splitting requests after the leader's last word. Nobody would remove a
// candidate that fails meanwhile.
const standPatience = 5 * time.Second

// RolloutPeers are the other replicas of the provider, as gradual rollouts see them. Each replica splits its own
// requests. One leads: it decides with the counts of all, and the others split as it says.
type RolloutPeers interface {
	// Leads reports whether this replica decides.
	Leads() bool
	// Exchange tells the others how the rollouts stand, and returns what each of them has counted. The counts of those
	// that do not answer within a second are missing.
	Exchange(ctx context.Context, all []RolloutStand) []RolloutCounts
}

// RolloutStand is how a rollout stands, as the leader says.
type RolloutStand struct {
	// Function is the full name of the function, and Revision the candidate's.
	Function string        `json:"function"`
	Revision uint64        `json:"revision"`
	Phase    rollout.Phase `json:"phase"`
	Step     int           `json:"step"`
	Began    time.Time     `json:"began"`
	Ready    bool          `json:"ready"`
	// Why is what it waits for, and Tally has the counts of all replicas.
	Why   string       `json:"why"`
	Tally RolloutTally `json:"tally"`
}

// RolloutTally counts the requests of a rollout, since it began.
type RolloutTally struct {
	Present   rollout.Side `json:"present"`
	Candidate rollout.Side `json:"candidate"`
	// Served is the number of clients' requests that the candidate has had. Candidate counts copies, too.
	Served    int64  `json:"served"`
	Compared  uint64 `json:"compared"`
	Different uint64 `json:"different"`
}

// RolloutCounts is what one replica has counted of a rollout.
type RolloutCounts struct {
	// Replica identifies the replica's process. Its counts never fall.
	Replica  string       `json:"replica"`
	Function string       `json:"function"`
	Revision uint64       `json:"revision"`
	Tally    RolloutTally `json:"tally"`
}

// replicaTallies are the latest counts of the other replicas by their processes. Those of a replica that is gone stay.
type replicaTallies map[string]RolloutTally

// note takes in the counts of a replica. They fall only if it has begun to count anew: those before stay then, because
// decisions subtract earlier sums.
func (all replicaTallies) note(replica string, t RolloutTally) {
	const before = "before " // No process has it in its name.
	if was := all[replica]; !t.covers(was) {
		all[before+replica] = all[before+replica].plus(was)
	}
	all[replica] = t
}

// covers reports whether no count is below that of an earlier tally.
func (t RolloutTally) covers(o RolloutTally) bool {
	side := func(a, b rollout.Side) bool {
		return a.Answered >= b.Answered && a.Missed >= b.Missed && a.Failed >= b.Failed
	}
	return side(t.Present, o.Present) && side(t.Candidate, o.Candidate) && t.Served >= o.Served &&
		t.Compared >= o.Compared && t.Different >= o.Different
}

// followed is what a replica that does not lead knows of a rollout from the leader. following: it did not lead when it
// looked last. last has the zero revision before the first word, which came at heard.
type followed struct {
	following bool
	last      RolloutStand
	heard     time.Time
	// resumed: it leads since its last look, and has not asked the others for their counts yet.
	resumed bool
}

// plus returns the counts of two replicas together.
func (t RolloutTally) plus(o RolloutTally) RolloutTally {
	return RolloutTally{
		Present: t.Present.Plus(o.Present), Candidate: t.Candidate.Plus(o.Candidate), Served: t.Served + o.Served,
		Compared: t.Compared + o.Compared, Different: t.Different + o.Different,
	}
}

// seen returns the counts for a decision.
func (t RolloutTally) seen() rollout.Seen {
	return rollout.Seen{Stable: t.Present, Candidate: t.Candidate, Compared: t.Compared, Different: t.Different}
}

// tally returns the counts of all replicas. The lock is held.
func (r *running) tally() RolloutTally {
	sum := r.split.tally()
	for _, t := range r.others {
		sum = sum.plus(t)
	}
	return sum
}

// otherReplicas are the other replicas of the provider, nil if there is only this one.
type otherReplicas struct{ peers RolloutPeers }

// leads reports whether this replica decides about rollouts.
func (o otherReplicas) leads() bool { return o.peers == nil || o.peers.Leads() }

// exchange tells the other replicas how the rollouts stand and reads their counts, if this replica leads.
func (o otherReplicas) exchange(ctx context.Context, all []*running) {
	if o.peers == nil || len(all) == 0 || !o.peers.Leads() {
		return
	}
	stands := make([]RolloutStand, 0, len(all))
	byName := make(map[string]*running, len(all))
	for _, r := range all {
		r.mu.Lock()
		if !r.stand.following { // Otherwise it does not know yet what to say.
			stands = append(stands, RolloutStand{
				Function: r.of.full(), Revision: r.revision, Phase: r.state.Phase, Step: r.state.Step, Began: r.state.Began,
				Ready: r.split.ready.Load(), Why: r.why, Tally: r.tally(),
			})
		}
		r.mu.Unlock()
		byName[r.of.full()] = r
	}
	for _, c := range o.peers.Exchange(ctx, stands) {
		r := byName[c.Function]
		if r == nil || r.revision != c.Revision {
			continue
		}
		r.mu.Lock()
		if r.others == nil {
			r.others = replicaTallies{}
		}
		r.others.note(c.Replica, c.Tally)
		r.mu.Unlock()
	}
}

// Follow splits requests as the leader's rollouts stand, and returns this replica's counts of those that it knows.
func (r Rollouts) Follow(all []RolloutStand) (counts []RolloutCounts) {
	now := time.Now()
	for _, stand := range all {
		x := r.Server.rollouts.ofFunction(stand.Function)
		if x == nil || x.revision != stand.Revision {
			continue
		}
		x.mu.Lock()
		x.stand.last, x.stand.heard = stand, now
		counts = append(counts, RolloutCounts{Function: stand.Function, Revision: stand.Revision, Tally: x.split.tally()})
		x.mu.Unlock()
	}
	return counts
}

// follow splits requests as the leader said last. ready: the candidate has an instance that can answer. The lock is held.
func (r *running) follow(ready bool, now time.Time) {
	r.stand.following = true
	told := r.stand.last
	if told.Revision != r.revision || now.Sub(r.stand.heard) > standPatience {
		r.why = "this replica of the provider waits for the one that leads"
		r.split.apply(r.state, rollout.Plan{}, false)
		return
	}
	r.why = told.Why
	r.split.apply(rollout.State{Phase: told.Phase, Step: told.Step}, r.plan, ready && told.Ready)
}

// lead makes this replica decide, from where the leader before it was. The lock is held.
func (r *running) lead(seen rollout.Seen, now time.Time) {
	told := r.stand.last
	switch {
	case r.stand.following:
		r.stand.following, r.stand.resumed = false, true
	case r.stand.resumed: // The others have told what they counted until now. That is no evidence of this step.
		r.stand.resumed = false
		told = RolloutStand{Revision: r.revision, Phase: r.state.Phase, Step: r.state.Step, Began: r.state.Began}
	default:
		return
	}
	if told.Revision == r.revision {
		r.state = rollout.Resume(told.Phase, told.Step, told.Began, r.plan, seen, now)
	}
}
