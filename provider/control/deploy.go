package control

import (
	"context"
	"fmt"
	"github.com/faas-infer/faas-infer/model/source/origin"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/web"
)

var _ provider.Controller = (*Controller)(nil)

// Deploy implements [provider.Controller]. It checks the model before it changes anything. If
// the model was measured before, it also checks that the model can meet its objective.
// A new model is measured in the background. The old revision is served until the new
// revision's times are known, and its instances serve until the new ones are ready.
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	if c.options.OneMachine && !f.Restored {
		nodes, err := c.options.Backend.Nodes(ctx)
		if err == nil {
			err = keeper.CheckRequests(f.Deployment, f.Inference.Requests, nodes)
		}
		if err != nil {
			return nil, err
		}
	}
	bundle, models, err := c.options.Bundles.Models(ctx, f)
	if err != nil {
		if err = web.BadRequest(c.checks.suggest(ctx, f, err)); bundle != "" {
			err = concealed{err, bundle}
		}
		return nil, err
	}
	f = knowing(c.finder, f, models)
	if err := c.pairs.check(f); err != nil {
		return nil, concealed{web.BadRequest(err), bundle}
	}
	secrets, err := secretFiles(c.options.Secrets, f)
	if err != nil {
		return nil, web.BadRequest(err)
	}
	untaught, why, err := c.checks.check(ctx, f, models)
	if err != nil {
		return nil, concealed{refused(f, c.checks.suggest(ctx, f, err)), bundle}
	}
	batches, err := policy(&c.rules, f)
	if err != nil {
		return nil, err
	}
	history := c.saver.records.History(f.Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper.Ended() {
		return nil, keeper.ErrClosed
	}
	fn, ok := c.functions[f.Name]
	if !ok {
		fn = c.newFunction(f, batches)
		c.functions[f.Name], c.order = fn, nil
		c.saver.remember(f.Name, history)
	}
	fn.replicas = f.Replicas
	c.revisions.want(fn, revision{
		Function: f, bundle: bundle, models: models, secrets: secrets,
		values: secretVersions(c.options.Secrets, f), policy: batches,
	}, untaught, why)
	c.Wake()
	return fn.classing.classifier, nil
}

// secretFiles returns the files of the secrets that a deployment names, by secret name.
func secretFiles(s Secrets, f *provider.Function) (map[string]string, error) {
	files := make(map[string]string, len(f.Deployment.Secrets))
	for _, name := range secretsOf(f) {
		file, err := s.File(f.Deployment.Namespace, name)
		if err != nil {
			return nil, err
		}
		files[name] = file
	}
	return files, nil
}

// secretsOf lists the secrets that instances of a function get. Those for the server of its model stay with the
// provider, which downloads the model.
func secretsOf(f *provider.Function) []string {
	if f.Inference.Source == "" {
		return f.Deployment.Secrets
	}
	return slices.DeleteFunc(slices.Clone(f.Deployment.Secrets), origin.SecretCounts)
}

// secretVersions returns a text that changes when one of the function's secrets is replaced.
// An instance keeps the values that it was started with, so a deployment after such a
// change must restart it.
func secretVersions(s Secrets, f *provider.Function) string {
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(secretsOf(f))) {
		fmt.Fprintf(&b, "%s %s\n", name, s.Version(f.Deployment.Namespace, name))
	}
	return b.String()
}

// Remove implements [provider.Controller].
func (c *Controller) Remove(ctx context.Context, name string) error {
	err := c.Base.Remove(ctx, name)
	c.saver.records.Forget(name, functionOf)
	return err
}

// Release is Remove for a function that another controller has taken over: it keeps the
// function's metrics and history.
func (c *Controller) Release(_ context.Context, name string) error {
	c.mu.Lock()
	fn, ok := c.functions[name]
	if !ok {
		c.mu.Unlock()
		return nil
	}
	delete(c.functions, name)
	c.order = nil
	c.revisions.drop(fn)
	for _, of := range []*keeper.Fleet[*instance]{&fn.Fleet, &fn.shadows, &fn.trials} {
		for _, in := range of.Instances {
			c.keeper.Retire(in, "removed")
		}
	}
	fn.Hide()
	for config := range fn.ratios {
		fn.Metrics.SetExecRatio(config, 0)
	}
	c.keeper.Dismiss(name, "its function was removed")
	c.options.Replica.Forget(name)
	c.options.Cold.Forget(name)
	c.mu.Unlock()
	fn.dispatcher.Close()
	return nil
}

// Restoring implements [provider.Controller].
func (c *Controller) Restoring(missing func(function string) bool) { c.keeper.Restoring(missing) }

// Scale implements [provider.Controller]. 0 retires all instances until the next request.
func (c *Controller) Scale(name string, replicas uint64) error {
	return c.Change(name, func(fn *function) {
		fn.replicas, fn.scaledToZero = replicas, replicas == 0
		fn.activity.Skip(statsOf(fn).Arrivals)
	})
}
