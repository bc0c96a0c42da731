package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// remote is what another replica has reported.
type remote struct {
	load Load
	// next is the since of the next poll, and version the version of the loads that it asks for.
	next, version uint64
	// executed are its executed batches that nobody has taken yet.
	executed []Executed
	// asking: a poll is in progress.
	asking bool
}

// remotes holds the other replicas by their IDs.
type remotes struct {
	mu  sync.Mutex
	all map[string]*remote
	// busyAt is when another replica last had requests.
	busyAt time.Time
}

// of returns a replica, a new one if it is unknown. The lock is held.
func (r *remotes) of(id string) *remote {
	if r.all[id] == nil {
		r.all[id] = &remote{}
	}
	return r.all[id]
}

// maxExecuted bounds the executed batches per replica that nobody has taken yet.
const maxExecuted = 8192

// pollLoads polls all other replicas for their loads until ctx ends.
func (g *Group) pollLoads(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked sync.WaitGroup
	defer asked.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(g.pause())
		others := g.others()
		g.remotes.keep(others)
		g.peers.keep(others)
		for _, m := range others {
			if g.isDown(m) {
				continue
			}
			if since, version, ok := g.remotes.begin(m.ID); ok {
				asked.Go(func() { g.pollOne(ctx, m, since, version) })
			}
		}
	}
}

// pause returns the time until the next poll.
func (g *Group) pause() time.Duration {
	g.remotes.mu.Lock()
	defer g.remotes.mu.Unlock()
	if g.leading() && time.Since(g.remotes.busyAt) < idleTicks*g.options.Tick {
		return g.options.Tick
	}
	return idleTicks * g.options.Tick
}

// begin marks a replica as being polled; it returns false if it already is.
func (r *remotes) begin(id string) (since, version uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of(id)
	if one.asking {
		return 0, 0, false
	}
	one.asking = true
	return one.next, one.version, true
}

// keep drops the replicas that are no longer members.
func (r *remotes) keep(members []Member) {
	present := make(map[string]bool, len(members))
	for _, m := range members {
		present[m.ID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.all {
		if !present[id] && !one.asking {
			delete(r.all, id)
		}
	}
}

func (g *Group) pollOne(ctx context.Context, m Member, since, version uint64) {
	load, err := g.loadOf(ctx, m, since, version)
	if err != nil && ctx.Err() == nil {
		g.options.Logger.Debug().Str("replica", m.ID).Err(err).Msg("could not read another replica's load")
	}
	g.remotes.answered(m.ID, load, err)
}

// answered stores a replica's answer to a poll.
func (r *remotes) answered(id string, load Load, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[id]
	one.asking = false
	if err != nil {
		return
	}
	if load.Boot != one.load.Boot && (one.next > 0 || one.version > 0) {
		one.next, one.version, one.load = 0, 0, Load{} // The replica has restarted; the next poll asks for everything.
		return
	}
	one.next = load.Next
	if len(one.executed) < maxExecuted {
		one.executed = append(one.executed, load.Executed...)
	}
	load.Executed, load.Functions = nil, merge(one.load, load)
	if busier(one.load, load) {
		r.busyAt = time.Now()
	}
	one.load, one.version = load, load.Version
}

// busier reports whether requests arrived between two loads, or are in progress.
func busier(before, now Load) bool {
	for name, f := range now.Functions {
		if f.Waiting > 0 || f.InFlight > 0 || f.Arrivals != before.Functions[name].Arrivals {
			return true
		}
	}
	return false
}

// loadOf reads the load of one member.
func (g *Group) loadOf(ctx context.Context, m Member, since, version uint64) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body, err := g.call(ctx, m, http.MethodGet, loadsPath+"?since="+strconv.FormatUint(since, 10)+"&changed="+strconv.FormatUint(version, 10), nil)
	if err != nil {
		return Load{}, err
	}
	var load Load
	if err := json.Unmarshal(body, &load); err != nil || load.Boot == "" {
		return Load{}, fmt.Errorf("the answer of replica %s is not a load: %w", m.ID, err)
	}
	load.At = time.Now()
	return load, nil
}

// call sends a short request to a member and returns the body of the answer. A status other
// than 2xx is an error.
func (g *Group) call(ctx context.Context, m Member, method, path string, body io.Reader) ([]byte, error) {
	r, err := g.request(ctx, m, method, path, body)
	if err != nil {
		return nil, err
	}
	answer, err := g.client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			g.outOfReach(m, err)
		}
		return nil, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(io.LimitReader(answer.Body, maxLoad))
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("replica %s answers %s: %.200s", m.ID, answer.Status, read)
	}
	return read, err
}

// pushed stores a load that a replica has sent with a wake-up.
func (r *remotes) pushed(id string, load Load) {
	load.At, load.Executed = time.Now(), nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busyAt = load.At
	one := r.of(id)
	if one.load.Boot != load.Boot {
		one.next, one.version, one.load = 0, 0, Load{}
	}
	load.Functions = merge(one.load, load)
	one.load = load
}

// Loads returns the latest load of each other replica, if it is recent. It returns each executed
// batch once.
func (g *Group) Loads() []Load { return g.remotes.loads(g.boot, true) }

// loads returns the recent loads of all replicas but own. With take it moves the executed
// batches into them.
func (r *remotes) loads(own string, take bool) []Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Load
	for _, one := range r.all {
		if one.load.Boot == "" || one.load.Boot == own || time.Since(one.load.At) > staleAfter {
			continue
		}
		load := one.load
		if take {
			load.Executed, one.executed = one.executed, nil
		}
		out = append(out, load)
	}
	return out
}

// noneExecuted is a since that asks for no executed batches.
const noneExecuted = math.MaxUint64
