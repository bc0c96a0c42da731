package baselines

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// LeastLoaded is INFaaS' dispatcher (ATC'21, Algorithm 1): on arrival a request goes to the queue
// of the instance with the least work for its rate, and stays there. A free instance takes as
// many as its batch holds. No request is refused, however late. It serves for comparison and is
// no policy that a function can name.
type LeastLoaded struct {
	instances []*loaded
	// homeless are the requests that came while there was no instance.
	homeless []batching.RequestID
	// placed has the instance in whose queue a request waits.
	placed  map[batching.RequestID]*loaded
	actions []batching.Action
}

// loaded is an instance with its queue.
type loaded struct {
	batching.Instance
	queue []batching.RequestID
	// running is the number of requests of the batch that it executes.
	running int
}

// NewLeastLoaded returns the policy without instances.
func NewLeastLoaded() *LeastLoaded { return &LeastLoaded{placed: map[batching.RequestID]*loaded{}} }

// ahead is how long the instance needs for all that it has and one more.
func (in *loaded) ahead() float64 {
	b := in.Config.Batch
	return float64(len(in.queue)+in.running+1) / float64(b) * in.Exec[b-1].Seconds()
}

// Add implements [batching.Policy].
func (p *LeastLoaded) Add(_ time.Time, r batching.Request) { p.deal(r.ID) }

func (p *LeastLoaded) deal(id batching.RequestID) {
	if len(p.instances) == 0 {
		p.homeless = append(p.homeless, id)
		return
	}
	least := p.choose()
	least.queue = append(least.queue, id)
	p.placed[id] = least
}

// choose returns the instance for a request; there must be one.
func (p *LeastLoaded) choose() *loaded {
	least, ahead := p.instances[0], p.instances[0].ahead()
	for _, in := range p.instances[1:] {
		if a := in.ahead(); a < ahead {
			least, ahead = in, a
		}
	}
	return least
}

// Cancel implements [batching.Policy].
func (p *LeastLoaded) Cancel(_ time.Time, id batching.RequestID) bool {
	from := &p.homeless
	if in := p.placed[id]; in != nil {
		from = &in.queue
		delete(p.placed, id)
	}
	i := slices.Index(*from, id)
	if i >= 0 {
		*from = slices.Delete(*from, i, i+1)
	}
	return i >= 0
}

// Up implements [batching.Policy].
func (p *LeastLoaded) Up(_ time.Time, in batching.Instance) {
	if i := p.index(in.ID); i >= 0 {
		p.instances[i].Instance = in
		return
	}
	p.instances = append(p.instances, &loaded{Instance: in})
	p.redeal(p.take(&p.homeless))
}

// Down implements [batching.Policy].
func (p *LeastLoaded) Down(_ time.Time, id cluster.InstanceID) {
	i := p.index(id)
	if i < 0 {
		return
	}
	in := p.instances[i]
	p.instances = slices.Delete(p.instances, i, i+1)
	p.redeal(p.take(&in.queue))
}

// take empties a queue and returns what was in it.
func (p *LeastLoaded) take(queue *[]batching.RequestID) []batching.RequestID {
	ids := *queue
	*queue = nil
	return ids
}

// redeal deals requests that waited elsewhere.
func (p *LeastLoaded) redeal(ids []batching.RequestID) {
	for _, id := range ids {
		delete(p.placed, id)
		p.deal(id)
	}
}

// Done implements [batching.Policy].
func (p *LeastLoaded) Done(_ time.Time, id cluster.InstanceID) {
	if i := p.index(id); i >= 0 {
		p.instances[i].running = 0
	}
}

func (p *LeastLoaded) index(id cluster.InstanceID) int {
	return slices.IndexFunc(p.instances, func(in *loaded) bool { return in.ID == id })
}

// Actions implements [batching.Policy].
func (p *LeastLoaded) Actions(time.Time) []batching.Action {
	p.actions = p.actions[:0]
	for _, in := range p.instances {
		n := min(len(in.queue), in.Config.Batch)
		if n == 0 || in.running > 0 {
			continue
		}
		batch := slices.Clone(in.queue[:n])
		in.queue, in.running = slices.Delete(in.queue, 0, n), n
		for _, id := range batch {
			delete(p.placed, id)
		}
		p.actions = append(p.actions, batching.Action{Instance: in.ID, Dispatch: batch})
	}
	return p.actions
}

// Next implements [batching.Policy]. Only events let it act.
func (p *LeastLoaded) Next() (at time.Time, ok bool) { return time.Time{}, false }

// Waiting implements [batching.Policy].
func (p *LeastLoaded) Waiting() int { return len(p.placed) + len(p.homeless) }
