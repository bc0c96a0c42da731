package provider

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Rates counts requests at one replica of the provider for all.
type Rates interface {
	// Take counts a request of a caller at the function's owner. It calls own to count it here, if
	// this replica is the owner, or the owner cannot be reached.
	Take(ctx context.Context, function, caller string, own func() access.Outcome) access.Outcome
}

// source is where keys come from: a secret, or the provider's own file if both fields are "".
type source struct{ namespace, secret string }

// guard has the keys of one source.
type guard struct {
	source
	// loading is held while the source is read.
	loading sync.Mutex
	ring    atomic.Pointer[ring]
}

// ring is what a source contained when it was read last. keys is nil if nobody may call, and problem is
// why.
type ring struct {
	keys    *access.Keys
	problem error
	hash    [sha256.Size]byte
}

// policy is what a request to a function has to fulfil.
type policy struct {
	// names are the function's names, the full one first.
	names []string
	// guard is nil if anybody may call, limiter if there is no rate.
	guard   *guard
	limiter *access.Limiter
}

// callers knows who may call which function. The request path reads a function's policy only.
type callers struct {
	secrets    Secrets
	namespaces namespaces
	// file is Options.AccessKeys, rates Options.Rates.
	file  string
	rates Rates
	now   func() time.Time
	log   zerolog.Logger

	// following is held while functions' policies are replaced: one that has read a namespace earlier must not do it later.
	following sync.Mutex

	mu     sync.Mutex
	guards map[source]*guard
	// defaults are the secrets of namespaces by the namespaces' names, as they were read last.
	defaults map[string]string
}

// admit decides whether the sender of a request may call a function now. It removes the header with
// the sender's key, which is not for the function, and adds headers to the answer. The error is a
// [web.Error]: 401 or 403 for the wrong key, 429 above the rate, 503 if the keys cannot be read.
func (c *callers) admit(ctx context.Context, d *deployed, request, answer http.Header) error {
	p := d.policy.Load()
	if p == nil {
		return nil
	}
	caller, header, refusal := p.identify(request, c.now())
	if refusal != nil {
		d.metrics.Callers.Refuse(refusal.Reason)
		return refuse(answer, p.names[0], refusal)
	}
	if p.guard != nil {
		delete(request, header)
		d.metrics.Callers.Pass(caller.Name)
	}
	if p.limiter == nil {
		return nil
	}
	outcome := c.take(ctx, d.Name, caller.ID, p.limiter)
	if outcome.Limit > 0 {
		answer["Ratelimit-Limit"] = []string{strconv.Itoa(outcome.Limit)}
		answer["Ratelimit-Remaining"] = []string{strconv.Itoa(outcome.Remaining)}
		answer["Ratelimit-Reset"] = []string{strconv.Itoa(int(math.Ceil(outcome.Reset.Seconds())))}
	}
	if !outcome.Allowed {
		d.metrics.Callers.Refuse(access.Exceeded)
		return &web.Error{Status: http.StatusTooManyRequests, After: outcome.Retry,
			Text: fmt.Sprintf("the rate of requests to %s is at most %s: wait and try again", d.Name, p.limiter.Rate())}
	}
	return nil
}

// identify returns who has sent a request with this header, and the field with the sender's key, or why the
// sender may not call the function at all. Both are empty if anybody may.
func (p *policy) identify(request http.Header, now time.Time) (access.Caller, string, *access.Refusal) {
	if p.guard == nil {
		return access.Caller{}, "", nil
	}
	keys := p.guard.ring.Load().keys
	if keys == nil {
		return access.Caller{}, "", &access.Refusal{Reason: access.Closed}
	}
	credential, field := access.Credential(request)
	caller, refusal := keys.Check(credential, p.names, now)
	return caller, field, refusal
}

// take counts a request against a function's rate.
func (c *callers) take(ctx context.Context, function, caller string, l *access.Limiter) access.Outcome {
	own := func() access.Outcome { return l.Take(caller, c.now()) }
	if c.rates == nil {
		return own()
	}
	return c.rates.Take(ctx, function, caller, own)
}

// Admit decides whether a message of the queue that has come past this server may have a function
// invoked, as for other requests. It removes the sender's key from the header. It admits messages for
// unknown functions. The error is a [web.Error].
func (s Access) Admit(ctx context.Context, name string, header http.Header) error {
	d := queueable(s.Server, name)
	if d == nil {
		return nil
	}
	return s.callers.admit(ctx, d, header, http.Header{})
}

// Count counts a request to a function against its rate, for another replica of the provider;
// false if the function is not deployed here.
func (s Access) Count(function, caller string) (access.Outcome, bool) {
	d, ok := s.named(function)
	if !ok {
		return access.Outcome{}, false
	}
	if l := d.limiter(); l != nil {
		return l.Take(caller, s.now()), true
	}
	return access.Outcome{Allowed: true}, true // This replica knows of another revision.
}

// refuse returns the answer to a request with the wrong key (RFC 6750, section 3), or to any if no key can be read.
func refuse(answer http.Header, function string, r *access.Refusal) error {
	if r.Reason == access.Closed {
		return web.Unavailable(accessPause, "nobody can call %s now, because the keys of its callers cannot be read: its description has the reason", function)
	}
	status, challenge := http.StatusUnauthorized, fmt.Sprintf("Bearer realm=%q", function)
	switch r.Reason {
	case access.Missing:
	case access.Foreign:
		status = http.StatusForbidden
		challenge += `, error="insufficient_scope"`
	default:
		challenge += `, error="invalid_token"`
	}
	answer["Www-Authenticate"] = []string{challenge}
	return &web.Error{Status: status, Text: r.Why}
}
