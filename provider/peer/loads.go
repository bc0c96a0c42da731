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
		g.forget(others)
		for _, m := range others {
			if since, ok := g.begin(m); ok {
				asked.Go(func() { g.askOne(ctx, m, since) })
			}
		}
	}
}

// pause is the time until loads are asked for again.
func (g *Group) pause() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leading() && time.Since(g.lively) < idleTicks*g.options.Tick {
		return g.options.Tick
	}
	return idleTicks * g.options.Tick
}

// begin notes that a member is asked; false if it is still, or cannot be reached.
func (g *Group) begin(m Member) (since uint64, ok bool) {
	if g.isDown(m.ID) {
		return 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.remotes[m.ID]
	if r == nil {
		r = &remote{}
		g.remotes[m.ID] = r
	}
	if r.asking {
		return 0, false
	}
	r.asking = true
	return r.next, true
}

// forget drops those that are no members any more.
func (g *Group) forget(others []Member) {
	present := make(map[string]bool, len(others))
	for _, m := range others {
		present[m.ID] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, r := range g.remotes {
		if !present[id] && !r.asking {
			delete(g.remotes, id)
		}
	}
}

func (g *Group) askOne(ctx context.Context, m Member, since uint64) {
	load, err := g.loadOf(ctx, m, since)
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.remotes[m.ID]
	r.asking = false
	if err != nil {
		if ctx.Err() == nil {
			g.options.Logger.Debug().Str("replica", m.ID).Err(err).Msg("another replica's load is not known")
		}
		return
	}
	if load.Boot != r.load.Boot && r.next > 0 {
		r.next, r.load = 0, Load{} // Another process; all of it is asked for next.
		return
	}
	if busier(r.load, load) {
		g.lively = time.Now()
	}
	r.next = load.Next
	if len(r.executed) < maxExecuted {
		r.executed = append(r.executed, load.Executed...)
	}
	load.Executed = nil
	r.load = load
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
func (g *Group) pushed(id string, load Load) {
	load.At, load.Executed = time.Now(), nil
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lively = load.At
	r := g.remotes[id]
	if r == nil {
		r = &remote{}
		g.remotes[id] = r
	}
	if r.load.Boot != load.Boot {
		r.next = 0
	}
	r.load = load
}

// Loads returns what each of the others last told, if that is not long ago; what was
// executed is told once.
func (g *Group) Loads() []Load { return g.loads(true) }

func (g *Group) loads(take bool) []Load {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Load
	for _, r := range g.remotes {
		if r.load.Boot == "" || r.load.Boot == g.boot || time.Since(r.load.At) > stale {
			continue
		}
		load := r.load
		if take {
			load.Executed, r.executed = r.executed, nil
		}
		out = append(out, load)
	}
	return out
}

// noneExecuted is a since after which nothing was executed.
const noneExecuted = math.MaxUint64
