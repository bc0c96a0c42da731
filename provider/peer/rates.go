package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/access"
)

// RateCounter counts a request of a caller to a function at this replica; false if it does not know the
// function.
type RateCounter func(function, caller string) (access.Outcome, bool)

// Rates counts the requests to each function at one replica, its owner, so that a rate holds for all
// replicas together. It costs a request to the owner, but moves no body. Create it with [NewRates].
type Rates struct{ group *Group }

var _ provider.Rates = Rates{}

// NewRates returns the rates of a group. Until Attach, other replicas are told that this one knows no
// function.
func NewRates(g *Group) Rates { return Rates{g} }

// Attach sets how this replica counts for others.
func (r Rates) Attach(c RateCounter) { r.group.counter.Store(&c) }

// Take implements [provider.Rates].
func (r Rates) Take(ctx context.Context, function, caller string, own func() access.Outcome) access.Outcome {
	g := r.group
	self := g.options.Membership.Self()
	for _, m := range Rank(function, g.options.Membership.Members()) {
		if m.ID == self {
			break
		}
		if g.isDown(m) {
			continue
		}
		outcome, err := r.ask(ctx, m, function, caller)
		if err == nil {
			return outcome
		}
		g.options.Logger.Debug().Str("replica", m.ID).Err(err).Msg("could not count a request at the function's owner")
	}
	return own()
}

// ask counts a request at another replica. One that does not answer in time is left out from then on, so that it makes
// only the requests of that time wait.
func (r Rates) ask(ctx context.Context, m Member, function, caller string) (o access.Outcome, err error) {
	silent, done := watched(r.group, m)
	defer done()
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	defer context.AfterFunc(silent, cancel)()
	body, err := r.group.call(within, m, http.MethodPost, ratePath+function+"?caller="+url.QueryEscape(caller), nil)
	if err != nil {
		if ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
			r.group.outOfReach(m, err)
		}
		return o, err
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return o, fmt.Errorf("the outcome of replica %s: %w", m.ID, err)
	}
	return o, nil
}

// serve counts a request for another replica.
func (r Rates) serve(w http.ResponseWriter, q *http.Request) {
	o, known := access.Outcome{}, false
	if count := r.group.counter.Load(); count != nil {
		o, known = (*count)(q.PathValue("name"), q.URL.Query().Get("caller"))
	}
	if !known {
		http.Error(w, "this replica does not know the function (yet)", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// An error means that the other replica has hung up.
	_ = json.NewEncoder(w).Encode(o)
}
