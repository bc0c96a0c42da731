package pool

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/provider"
)

// This file keeps a member from spoiling its pool: one that states an objective for which the model is too slow is left
// out of the pool's objective, and only its own requests are refused. Its errors name the member and not the pool.

// judge returns why the model is too slow for members, by name, and orders members. They are alike but for their objectives, so all with
// longer ones than the first that can be kept are kept, too.
func judge(members []*provider.Function, tooSlow func(*provider.Function) error) map[string]string {
	slices.SortFunc(members, func(a, b *provider.Function) int {
		return cmp.Or(cmp.Compare(a.Inference.SLO, b.Inference.SLO), cmp.Compare(a.Inference.Shortest, b.Inference.Shortest))
	})
	why := map[string]string{}
	for _, f := range members {
		err := tooSlow(f)
		if err == nil {
			break
		}
		why[f.Name] = err.Error()
	}
	return why
}

// tellHopeless makes members refuse their requests if the model is too slow for them. The lock is held.
func (p *Pool) tellHopeless() {
	for name, m := range p.members {
		if why, is := p.hopeless[name]; is {
			m.hopeless.Store(&why)
		} else if m.hopeless.Load() != nil {
			m.hopeless.Store(nil)
		}
	}
}

// look judges the members again if the pool does not serve all of them as it should: the model's times may be known
// by now, or the controller may take what it has refused.
func (p *Pool) look(ctx context.Context) {
	p.changing.Lock()
	defer p.changing.Unlock()
	full := p.full()
	d, ok := p.pools.runs.Describe(full)
	fine := d.Measured && d.Problem == "" && len(p.hopeless) == 0 && p.refused == 0
	if !ok || fine || p.refused > 0 && time.Now().Before(p.retryAt) {
		return
	}
	if err := p.redeploy(ctx); err != nil && ctx.Err() == nil {
		p.pools.options.Logger.Warn().Str("function", full).Err(err).Msg("the pool stays as it is")
	}
}

// ownName puts a member's name in place of its pool's.
func ownName(text, pool string, f *provider.Function) string {
	service, _, _ := strings.Cut(pool, ".")
	return strings.ReplaceAll(strings.ReplaceAll(text, pool, f.Name), service, f.Deployment.Service)
}

// owned is an error of a pool for a member, nil for none.
func owned(err error, pool string, f *provider.Function) error {
	if err == nil || ownName(err.Error(), pool, f) == err.Error() {
		return err
	}
	return ownError{err, ownName(err.Error(), pool, f)}
}

// ownError is an error of a pool in the words for one of its members.
type ownError struct {
	error
	text string
}

// Error implements error.
func (e ownError) Error() string { return e.text }

// Unwrap returns the error with the pool's name.
func (e ownError) Unwrap() error { return e.error }
