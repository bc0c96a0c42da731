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

// remote is what another replica has told.
type remote struct {
	load Load
	// next is what to ask for as since.
	next uint64
	// executed has not been taken yet.
	executed []Executed
	// asking: an answer is waited for.
	asking bool
}

// remotes are the other replicas by their IDs.
type remotes struct {
	mu  sync.Mutex
	all map[string]*remote
	// lively is when requests last were there.
	lively time.Time
}

// of finds a replica. The lock is held.
func (r *remotes) of(id string) *remote {
	if r.all[id] == nil {
		r.all[id] = &remote{}
	}
	return r.all[id]
}

// maxExecuted bounds what a replica has executed until it is taken.
const maxExecuted = 8192

// ask asks all others for their loads, again and again.
func (g *Group) ask(ctx context.Context) {
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
		for _, m := range others {
			if g.isDown(m.ID) {
				continue
			}
			if since, ok := g.remotes.begin(m.ID); ok {
				asked.Go(func() { g.askOne(ctx, m, since) })
			}
		}
	}
}

// pause is the time until loads are asked for again.
func (g *Group) pause() time.Duration {
	g.remotes.mu.Lock()
	defer g.remotes.mu.Unlock()
	if g.leading() && time.Since(g.remotes.lively) < idleTicks*g.options.Tick {
		return g.options.Tick
	}
	return idleTicks * g.options.Tick
}

// begin notes that a replica is asked; false if it is still.
func (r *remotes) begin(id string) (since uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of(id)
	if one.asking {
		return 0, false
	}
	one.asking = true
	return one.next, true
}

// keep drops those that are no members any more.
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

func (g *Group) askOne(ctx context.Context, m Member, since uint64) {
	load, err := g.loadOf(ctx, m, since)
	if err != nil && ctx.Err() == nil {
		g.options.Logger.Debug().Str("replica", m.ID).Err(err).Msg("another replica's load is not known")
	}
	g.remotes.answered(m.ID, load, err)
}

// answered takes in what a replica that was asked has told.
func (r *remotes) answered(id string, load Load, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[id]
	one.asking = false
	if err != nil {
		return
	}
	if load.Boot != one.load.Boot && one.next > 0 {
		one.next, one.load = 0, Load{} // Another process; all of it is asked for next.
		return
	}
	if busier(one.load, load) {
		r.lively = time.Now()
	}
	one.next = load.Next
	if len(one.executed) < maxExecuted {
		one.executed = append(one.executed, load.Executed...)
	}
	load.Executed = nil
	one.load = load
}

// busier reports whether requests came between two loads, or are there.
func busier(before, now Load) bool {
	for name, f := range now.Functions {
		if f.Waiting > 0 || f.InFlight > 0 || f.Arrivals != before.Functions[name].Arrivals {
			return true
		}
	}
	return false
}

// loadOf asks one member.
func (g *Group) loadOf(ctx context.Context, m Member, since uint64) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	body, err := g.call(ctx, m, http.MethodGet, loadsPath+"?since="+strconv.FormatUint(since, 10), nil)
	if err != nil {
		return Load{}, err
	}
	var load Load
	if err := json.Unmarshal(body, &load); err != nil || load.Boot == "" {
		return Load{}, fmt.Errorf("replica %s tells what is no load: %w", m.ID, err)
	}
	load.At = time.Now()
	return load, nil
}

// call makes a short request of a member and returns the answer; its status is 2xx.
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

// pushed takes in a load that a replica tells unasked.
func (r *remotes) pushed(id string, load Load) {
	load.At, load.Executed = time.Now(), nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lively = load.At
	one := r.of(id)
	if one.load.Boot != load.Boot {
		one.next = 0
	}
	one.load = load
}

// Loads returns what each of the others last told, if that is not long ago; what was
// executed is told once.
func (g *Group) Loads() []Load { return g.remotes.loads(g.boot, true) }

// loads are those of all but the replica that is called own; take takes what was
// executed.
func (r *remotes) loads(own string, take bool) []Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Load
	for _, one := range r.all {
		if one.load.Boot == "" || one.load.Boot == own || time.Since(one.load.At) > stale {
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

// noneExecuted is a since after which nothing was executed.
const noneExecuted = math.MaxUint64
