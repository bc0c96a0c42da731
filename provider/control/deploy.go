package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling/capacity"
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
		if err = web.BadRequest(suggestion{c.options.Cuttable, &c.rules}.to(ctx, f, err)); bundle != "" {
			err = concealed{err, bundle}
		}
		return nil, err
	}
	f = c.knowing(f, models)
	if err := c.pairs.check(ctx, f, models); err != nil {
		return nil, concealed{web.BadRequest(err), bundle}
	}
	secrets, err := secretFiles(c.options.Secrets, f)
	if err != nil {
		return nil, web.BadRequest(err)
	}
	untaught, why, err := c.check(ctx, f, models)
	if err != nil {
		return nil, concealed{refused(f, suggestion{c.options.Cuttable, &c.rules}.to(ctx, f, err)), bundle}
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
		fn.unknown, fn.classing.stale = models, true
		fn.offer()
		c.functions[f.Name], c.order = fn, nil
		c.saver.remember(f.Name, history)
	} else {
		fn.abandon()
		fn.making.keep(c.options.improvement(f, bundle))
		// The new deployment may not have the problem of the earlier one.
		fn.failed, fn.unregistered, fn.planning = "", "", false
		fn.classing.classifier.lesson.Store(nil)
		fn.tell(time.Now())
	}
	fn.wanted, fn.replicas, fn.bundle = f, f.Replicas, bundle
	p := preparation{Controller: c, fn: fn, revision: revision{Function: f, bundle: bundle, models: models, secrets: secrets, values: secretVersions(c.options.Secrets, f), policy: batches}}
	if untaught != "" {
		p.lesson, p.untaught = p.openLesson(untaught, why), untaught
	}
	p.begin()
	c.Wake()
	return fn.classing.classifier, nil
}

// begin prepares the revision in the background. The lock is held.
func (c preparation) begin() {
	ctx, abandon := context.WithCancel(c.keeper.Context())
	c.fn.abandon = abandon
	c.fn.again = func() {
		abandon()
		same := *c.knowing(c.Function, c.models) // A new pointer: what is left of the abandoned work must not serve.
		c.Function, c.again, c.fn.wanted, c.lesson = &same, true, &same, nil
		c.begin()
	}
	if c.options.Devices != nil {
		c.fn.searched = search{begun: time.Now(), kinds: c.options.Devices.Devices(), led: c.finder.Leading()}
	}
	c.keeper.Begin(func() {
		defer abandon()
		c.prepare(ctx)
	})
}

// check returns an error if a model cannot be read, if none is as accurate as the deployment
// asks, or if all that are were measured and cannot meet the objective. untaught is the file of a model whose
// sizes requests have to teach, since it runs with none that were tried, and why says more; "" for none.
func (c *Controller) check(ctx context.Context, f *provider.Function, models []Model) (untaught, why string, err error) {
	if err := checkAccuracy(f, models); err != nil {
		return "", "", err
	}
	var hopeless error
	able := len(models) == 0 || f.Inference.Partition != "" && !isCut(models) // Cutting may help.
	for _, m := range models {
		var err error
		if m.Profile == nil {
			err = c.finder.Check(ctx, f, m.File)
		} else if why := c.rules.Hopeless(f, c.rules.Promised(f, m.Profile)); why != nil {
			err = why
		}
		var key *annotation.Error
		switch {
		case errors.Is(err, latency.ErrNoSizes) && learns(f):
			untaught, why, able = m.File, sizesTried(err), true
		case err != nil && !errors.As(err, &key):
			return "", "", named(m.Name, err)
		case m.Accuracy < f.Inference.Accuracy:
		case err != nil:
			hopeless = cmp.Or(hopeless, err)
		default:
			able = true
		}
	}
	if able {
		return untaught, why, nil
	}
	if isCut(models) {
		return "", "", cmp.Or[error](tooSlow(&c.rules, c.finder, f, models), hopeless)
	}
	return "", "", hopeless
}

// tooSlow returns why neither the models nor the ways to cut them meet the objective: with the
// fastest of all. It returns nil if one of them does.
func tooSlow(rules *latency.Rules, finder *latency.Finder, f *provider.Function, models []Model) error {
	var all []capacity.Candidate
	for _, m := range models {
		switch {
		case m.Accuracy < f.Inference.Accuracy:
		case m.Profile != nil:
			all = append(all, rules.Promised(f, m.Profile)...)
		default:
			all = append(all, finder.Promised(f, m.File)...)
		}
	}
	if why := rules.Hopeless(f, all); why != nil {
		return why
	}
	return nil
}

// checkAccuracy refuses an accuracy that no model reaches, and names the nearest.
func checkAccuracy(f *provider.Function, models []Model) error {
	if len(models) == 0 {
		return nil
	}
	best := slices.MaxFunc(models, func(a, b Model) int { return cmp.Compare(a.Accuracy, b.Accuracy) })
	if best.Accuracy >= f.Inference.Accuracy {
		return nil
	}
	why := fmt.Sprintf("no model of image %q is that accurate; the nearest, %s, has %g", f.Deployment.Image, best.Name, best.Accuracy)
	if best.Accuracy == 0 {
		why = fmt.Sprintf("the accuracy of no model of image %q is known; state it as accuracy below models in its bundle.yaml, or measure it with faas-infer model variants", f.Deployment.Image)
	}
	return &annotation.Error{Key: annotation.SLOAccuracy, Value: strconv.FormatFloat(f.Inference.Accuracy, 'g', -1, 64), Why: why}
}

// refused turns the error of a model's check into the answer to a deployment. It adds the
// image's name, unless the error names an annotation.
func refused(f *provider.Function, err error) error {
	var why *annotation.Error
	if errors.As(err, &why) {
		return err
	}
	return web.BadRequest(fmt.Errorf("image %q: %w", f.Deployment.Image, err))
}

// concealed is an error about the models of a bundle. Its sentence names files relative to the bundle, and
// shows no other path of the machine.
type concealed struct {
	error
	bundle string
}

// Error implements error.
func (e concealed) Error() string { return web.ConcealBelow(e.error.Error(), e.bundle) }

// Unwrap returns the error with the whole paths.
func (e concealed) Unwrap() error { return e.error }

// secretFiles returns the files of the secrets that a deployment names, by secret name.
func secretFiles(s Secrets, f *provider.Function) (map[string]string, error) {
	files := make(map[string]string, len(f.Deployment.Secrets))
	for _, name := range f.Deployment.Secrets {
		file, err := s.File(f.Deployment.Namespace, name)
		if err != nil {
			return nil, err
		}
		files[name] = file
	}
	return files, nil
}

// secretVersions returns a text that changes when one of the function's secrets is replaced.
// An instance keeps the values that it was started with, so a deployment after such a
// change must restart it.
func secretVersions(s Secrets, f *provider.Function) string {
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(f.Deployment.Secrets)) {
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
	fn.abandon()
	fn.making.keep("")
	fn.wanted = nil
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
		fn.activity.Skip(c.stats(fn).Arrivals)
	})
}
