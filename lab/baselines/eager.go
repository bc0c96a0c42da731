package baselines

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// eager is a policy that gives a free accelerator a batch at once. choose says which requests: size of those that
// wait, from the from-th on. The requests before are dropped, as are those that are too late for a batch of one.
//
// It serves for comparison and is no policy that a function can name.
type eager struct {
	// dealt: each instance has a queue, which requests join in turn. Otherwise all share the first one.
	dealt  bool
	choose func(now time.Time, queue []batching.Request, exec []time.Duration) (from, size int)

	instances []*server
	queues    map[cluster.InstanceID][]batching.Request
	turn      int
	actions   []batching.Action
}

// server is an instance and whether it executes.
type server struct {
	batching.Instance
	busy bool
}

func newEager(dealt bool, choose func(time.Time, []batching.Request, []time.Duration) (from, size int)) *eager {
	return &eager{dealt: dealt, choose: choose, queues: map[cluster.InstanceID][]batching.Request{}}
}

// common is the name of the queue that all share, and of that of the requests that come while there is no instance.
const common cluster.InstanceID = ""

// Add implements [batching.Policy].
func (p *eager) Add(now time.Time, r batching.Request) {
	if r.Within <= 0 {
		r.Within = r.Deadline.Sub(now)
	}
	to := common
	if p.dealt && len(p.instances) > 0 {
		to = p.instances[p.turn%len(p.instances)].ID
		p.turn++
	}
	q := p.queues[to]
	i := len(q)
	for i > 0 && r.Deadline.Before(q[i-1].Deadline) {
		i--
	}
	p.queues[to] = slices.Insert(q, i, r)
}

// Cancel implements [batching.Policy].
func (p *eager) Cancel(_ time.Time, id batching.RequestID) bool {
	for of, q := range p.queues {
		if i := slices.IndexFunc(q, func(r batching.Request) bool { return r.ID == id }); i >= 0 {
			p.queues[of] = slices.Delete(q, i, i+1)
			return true
		}
	}
	return false
}

// Up implements [batching.Policy].
func (p *eager) Up(now time.Time, in batching.Instance) {
	if i := p.index(in.ID); i >= 0 {
		p.instances[i].Instance = in
		return
	}
	p.instances = append(p.instances, &server{Instance: in})
	p.move(now, common)
}

// Down implements [batching.Policy].
func (p *eager) Down(now time.Time, id cluster.InstanceID) {
	if i := p.index(id); i >= 0 {
		p.instances = slices.Delete(p.instances, i, i+1)
		p.move(now, id)
	}
}

// move adds the requests of a queue again.
func (p *eager) move(now time.Time, from cluster.InstanceID) {
	all := p.queues[from]
	delete(p.queues, from)
	for _, r := range all {
		p.Add(now, r)
	}
}

// Done implements [batching.Policy].
func (p *eager) Done(_ time.Time, id cluster.InstanceID) {
	if i := p.index(id); i >= 0 {
		p.instances[i].busy = false
	}
}

func (p *eager) index(id cluster.InstanceID) int {
	return slices.IndexFunc(p.instances, func(in *server) bool { return in.ID == id })
}

// Actions implements [batching.Policy].
func (p *eager) Actions(now time.Time) []batching.Action {
	p.actions = p.actions[:0]
	p.expire(now, common)
	for _, in := range p.instances {
		of := common
		if p.dealt {
			of = in.ID
		}
		p.expire(now, of)
		if !in.busy {
			p.expire(now.Add(in.Exec[0]), of)
			p.send(now, in, of)
		}
	}
	return p.actions
}

// send gives a free instance its next batch of a queue, if requests wait.
func (p *eager) send(now time.Time, in *server, of cluster.InstanceID) {
	if len(p.queues[of]) == 0 {
		return
	}
	from, size := p.choose(now, p.queues[of], in.Exec[:in.Config.Batch])
	p.drop(of, from)
	batch := batching.Action{Instance: in.ID}
	for _, r := range p.queues[of][:size] {
		batch.Dispatch = append(batch.Dispatch, r.ID)
	}
	p.queues[of] = slices.Delete(p.queues[of], 0, size)
	in.busy = true
	p.actions = append(p.actions, batch)
}

// expire refuses the requests of a queue whose deadlines are before a time.
func (p *eager) expire(before time.Time, of cluster.InstanceID) {
	n := 0
	for _, r := range p.queues[of] {
		if !r.Deadline.Before(before) {
			break
		}
		n++
	}
	p.drop(of, n)
}

// drop refuses the first n requests of a queue.
func (p *eager) drop(of cluster.InstanceID, n int) {
	for _, r := range p.queues[of][:n] {
		p.actions = append(p.actions, batching.Action{Reject: r.ID, Reason: batching.Late})
	}
	p.queues[of] = slices.Delete(p.queues[of], 0, n)
}

// Next implements [batching.Policy].
func (p *eager) Next() (at time.Time, ok bool) {
	for _, q := range p.queues {
		if len(q) > 0 && (!ok || q[0].Deadline.Before(at)) {
			at, ok = q[0].Deadline, true
		}
	}
	return at.Add(1), ok
}

// Waiting implements [batching.Policy].
func (p *eager) Waiting() (n int) {
	for _, q := range p.queues {
		n += len(q)
	}
	return n
}

// newClockwork returns the batches of Clockwork (OSDI 2020, §5.3): models are compiled for batches of 1, 2, 4, …, and
// a free worker gets the largest of these for which enough requests wait and that ends before its first deadline.
func newClockwork() batching.Policy {
	return newEager(false, func(now time.Time, q []batching.Request, exec []time.Duration) (from, size int) {
		for size = 1; 2*size <= min(len(q), len(exec)) && !now.Add(exec[2*size-1]).After(q[0].Deadline); {
			size *= 2
		}
		return 0, size
	})
}

// newShepherd returns Flex of Shepherd (NSDI 2023, Algorithm 2): a free accelerator gets the largest batch that ends
// before its first deadline. Flex also ends a batch for one that is three times as large. A [batching.Policy] cannot,
// so this one never does.
func newShepherd() batching.Policy {
	return newEager(false, func(now time.Time, q []batching.Request, exec []time.Duration) (from, size int) {
		for size = 1; size < min(len(q), len(exec)) && !now.Add(exec[size]).After(q[0].Deadline); {
			size++
		}
		return 0, size
	})
}

// newNexus returns the batches of Nexus (SOSP 2019). A model that fills accelerators gets the largest batch of which
// two fit the objective (§6.1), and frontends deal requests out in turn. With early drop (§6.3) a window of that size moves
// over the queue until its first request would be in time. The requests before the window are dropped.
func newNexus() batching.Policy {
	return newEager(true, func(now time.Time, q []batching.Request, exec []time.Duration) (from, size int) {
		size = 1
		for size < len(exec) && 2*exec[size] <= q[0].Within {
			size++
		}
		for from < len(q)-1 && now.Add(exec[min(size, len(q)-from)-1]).After(q[from].Deadline) {
			from++
		}
		return from, min(size, len(q)-from)
	})
}
