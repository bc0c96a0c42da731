package scaling

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
)

// Settings configure the auto-scaling engine.
type Settings struct {
	capacity.Options
	// Alpha determines the load below which instances are released (§3.2, Eq. 7).
	Alpha float64
	// Headroom is added to the measured load, as a part of it: at r_up exactly, queues
	// of requests that come at random never empty.
	Headroom float64
	// Stabilisation is how long a lower load must last before instances are released.
	// The remaining ones must carry the highest demand of this window, as with
	// Knative's stable window and the stabilisation window of Kubernetes' horizontal
	// autoscaler.
	Stabilisation time.Duration
	// Burst replaces Stabilisation for demand that comes from waiting requests alone,
	// for functions that are planned jointly. 0 means Stabilisation.
	Burst time.Duration
	// EvictIdle is how long an instance must have been idle before it makes room for a
	// function that has none.
	EvictIdle time.Duration
	// EvictLoads is how long, in multiples of the time that it took to load, an instance
	// must have been idle before it makes room for such a function, if that is more than
	// EvictIdle. See Running.lives and view.patient.
	EvictLoads float64
	// KeepAlive, if not 0, replaces the rule of surplus (§3.2, case (iii)): an instance
	// is released once it has been idle for that long, as with OpenFaaS' fixed
	// keep-alive.
	KeepAlive time.Duration
}

// DefaultSettings returns the provider's settings.
func DefaultSettings() Settings {
	return Settings{
		Options: capacity.Production(), Alpha: 0.8, Headroom: 0.1,
		Stabilisation: time.Minute, Burst: 15 * time.Second, EvictIdle: time.Second, EvictLoads: 2,
	}
}

// maxWork is how many steps the joint plans of a pass may take: about 0.6 s. A hundred functions
// hardly ever take as many. With more functions plans become rougher, but leave none out.
const maxWork = 600_000_000

// Engine is the auto-scaling engine (§3.1, §3.2). It remembers each function's demand
// for the stabilisation window, and when it last looked for better arrangements. It
// serves one caller at a time.
type Engine struct {
	settings Settings
	memories map[string]*memory
	// exchanges says when the engine next tries to exchange instances for better ones.
	exchanges joint.Patience
	// clock is the worth of the instances that made room last; see worth.
	clock float64
	// turns are those of the functions whose variants may be exchanged.
	turns queueOfTurns
	// crowded is when load was last left unplaced because there was no room.
	crowded time.Time
	// work is how many steps the joint plans of a pass may take together.
	work int
	// order, sorted, views and pointers are buffers that passes reuse.
	order    []named
	sorted   []Function
	views    []view
	pointers []*view
}

// New returns an engine without memory.
func New(s Settings) *Engine {
	return &Engine{settings: s, memories: map[string]*memory{}, work: maxWork}
}

// named is the name and the index of a function.
type named struct {
	name  string
	index int
}

// memory is what the engine remembers of a function.
type memory struct {
	Peak
	// bursts has the highest demands, waiting requests included. cold is the time since
	// which requests wait that found no ready instance.
	bursts Peak
	cold   time.Time
	rise   rise
	patience
	capacity.Recall
	// rearranged is when its instances were last exchanged for others.
	rearranged time.Time
	// arranged is the load in requests/s for which that was done.
	arranged   float64
	departure  departure
	worths     map[cluster.InstanceID]worth
	preference preference
	// merged is when one of its instances last made room for another.
	merged time.Time
}

// patience is what the engine must remember of a function to decide how long its requests
// wait for others' instances to live. Its zero value remembers nothing.
type patience struct {
	// unserved is the time since which requests come and find no ready instance, zero if
	// there is one. asked is when requests last waited.
	unserved, asked time.Time
	// loading is how long the latest instances of that revision took to load, 0 if that is
	// unknown.
	loading  time.Duration
	revision uint64
}

// departure is an exchange of instances for others of another form that is under way. With other
// variants of the model it is INFaaS' upgrade or downgrade (§4.2).
type departure struct {
	// from are the instances that the function leaves, by ID. at is when it began to.
	from []cluster.InstanceID
	at   time.Time
}

// worth is what an idle instance is worth by Greedy-Dual-Size-Frequency, as FaasCache
// (ASPLOS'21) keeps warm functions: the clock at its last use plus uses × loading time / size.
// The size is the largest part of its node's CPU, memory or GPUs that would be free without it. The instance
// that is worth least makes room first, and the clock goes on to its worth. So one that is
// dear to load stays longer than others, but not for ever.
//
// For example at clock 0 one that loads in 8 s and holds a tenth of its node is worth 80, after
// a second use 160. One that loads in 1 s on as much room is worth 10, and goes first; the
// clock is then 10. After eight such evictions, a new one of that kind is worth 90.
type worth struct {
	// since is when the instance became idle and uses how often it did.
	since time.Time
	uses  int
	value float64
}

// preference is what the engine remembers of a function that prefers accurate answers: the mean
// accuracy that its instances must have, and when that last rose.
type preference struct {
	mean float64
	at   time.Time
}

// mostTurns is how many functions a pass reconsiders: each takes copies of the room on all nodes.
const mostTurns = 32

// queueOfTurns lets functions take turns, by name, where more than mostTurns are due in a pass. The others follow
// in the next passes. Its zero value has nobody waiting.
type queueOfTurns struct {
	// after is the last that had its turn while others were left over, "" if none were.
	after, last string
	taken       int
	left        bool
}

// take reports whether it is a function's turn. A pass asks for the functions in the order of their names.
func (t *queueOfTurns) take(name string) bool {
	if name <= t.after {
		return false
	}
	if t.left = t.left || t.taken == mostTurns; t.left {
		return false
	}
	t.taken, t.last = t.taken+1, name
	return true
}

// end ends the pass.
func (t *queueOfTurns) end() {
	next := queueOfTurns{}
	if t.left {
		next.after = t.last
	}
	*t = next
}
