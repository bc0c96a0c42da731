package variant

import (
	"math"
	"math/bits"
	"time"
)

const (
	// sure is the number of executions after which a usual time counts. recall is the
	// number over which it is averaged.
	sure, recall = 20, 300
	// Period is the time over which the executions of an instance make one observation.
	// Three observations in a row decide ([Watch]), so a change is seen after 1.5 s. INFaaS
	// polls every 2 s (§5).
	Period = 500 * time.Millisecond
	// resigned is how long an instance is Interfered before its times count as usual,
	// unless another instance of the variant still has the former times.
	resigned = time.Minute
	// lately is how long an instance's executions say that it is calm.
	lately = 10 * time.Second
	// maxSeen bounds the executions of one observation.
	maxSeen = 256
)

// Usual learns the usual times of a variant's executions, as a ratio to its profile, for each
// share and class of batch sizes (1, 2, 3–4, 5–8, …). All instances of the variant share
// it. A profile that is wrong everywhere is therefore no interference; package correction
// corrects it. Interference is what one instance has and the others, or it itself before, have
// not. The zero value knows nothing.
type Usual struct {
	of map[slot]*ratio
}

// Part is a share of a machine: CPU in millicores, GPU in % of one GPU's SMs.
type Part struct{ CPU, GPU int }

// slot is a share and a class of batch sizes.
type slot struct {
	share Part
	class int
}

// ratio is the mean of ratios and of their distances from it.
type ratio struct {
	n                int
	mean, deviations float64
}

func (r *ratio) learn(x float64) {
	r.n = min(r.n+1, recall)
	r.mean += (x - r.mean) / float64(r.n)
	r.deviations += (math.Abs(x-r.mean) - r.deviations) / float64(r.n)
}

// Ratio returns the usual time of a batch over that of the profile, 1 if it is not known.
func (u *Usual) Ratio(share Part, batch int) float64 {
	if r := u.of[slotOf(share, batch)]; r != nil && r.n >= sure {
		return r.mean
	}
	return 1
}

func slotOf(share Part, batch int) slot { return slot{share, bits.Len(uint(batch - 1))} }

func (u *Usual) learn(s seen) {
	if u.of == nil {
		u.of = map[slot]*ratio{}
	}
	if u.of[s.slot] == nil {
		u.of[s.slot] = &ratio{}
	}
	u.of[s.slot].learn(s.ratio)
}

// seen is one execution and its time over that of the profile.
type seen struct {
	slot
	ratio float64
}

// Follower follows one instance of a variant through the states. Its zero value is Inactive.
type Follower struct {
	watch Watch
	// executed are the executions since began. since is when the instance became
	// Interfered.
	executed     []seen
	began, since time.Time
	// ran is when it last executed.
	ran time.Time
}

// State is the present state.
func (f *Follower) State() State { return f.watch.State() }

// Calm reports whether it has lately executed and is not Interfered.
func (f *Follower) Calm(now time.Time) bool {
	return f.State() != Interfered && !f.ran.IsZero() && now.Sub(f.ran) < lately
}

// Doubtful reports whether the latest observations may be the first of interference.
func (f *Follower) Doubtful() bool { return f.State() != Interfered && f.watch.against > 0 }

// Executed adds the execution of a batch on a share. profile is the time of that batch in
// the variant's profile.
func (f *Follower) Executed(share Part, batch int, exec, profile time.Duration) {
	if batch < 1 || exec <= 0 || profile <= 0 || len(f.executed) >= maxSeen {
		return
	}
	f.executed = append(f.executed, seen{slotOf(share, batch), float64(exec) / float64(profile)})
}

// Look makes an observation if one is due. load and peak are those of [Seen]. calm says that
// another instance of the variant executes and is not Interfered. Look teaches usual, except
// for executions that speak for interference. It reports whether it made an observation.
func (f *Follower) Look(now time.Time, usual *Usual, load, peak float64, calm bool) bool {
	if now.Sub(f.began) < Period {
		return false
	}
	before := f.watch.State()
	exec, expected := usual.compare(f.executed)
	f.watch = f.watch.After(Seen{Loaded: true, Load: load, Peak: peak, Exec: exec, Profile: expected})
	switch state := f.watch.State(); {
	case state != Interfered:
		if f.watch.against == 0 {
			for _, s := range f.executed {
				usual.learn(s)
			}
		}
	case before != Interfered:
		f.since = now
	case now.Sub(f.since) >= resigned && !calm:
		*usual, f.watch = Usual{}, Watch{state: Active}
	}
	if len(f.executed) > 0 {
		f.ran = now
	}
	f.began, f.executed = now, f.executed[:0]
	return true
}

// compare returns the mean time of executions in units of their usual times, and the time to
// expect. That is one unit, and the usual deviation of a mean of so many. Both are 0 if no
// usual time is known.
func (u *Usual) compare(executed []seen) (exec, expected time.Duration) {
	n, sum, deviations := 0.0, 0.0, 0.0
	for _, s := range executed {
		if r := u.of[s.slot]; r != nil && r.n >= sure {
			n++
			sum += s.ratio / r.mean
			deviations += r.deviations / r.mean
		}
	}
	if n == 0 {
		return 0, 0
	}
	unit := float64(time.Second)
	return time.Duration(unit * sum / n), time.Duration(unit * (1 + deviations/n/math.Sqrt(n)))
}
