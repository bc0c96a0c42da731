package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// checks refuses deployments whose models cannot be served.
type checks struct {
	rules  *latency.Rules
	finder *latency.Finder
	// cuttable is that of [Options].
	cuttable func(ctx context.Context, f *provider.Function) []Model
}

// check returns an error if a model cannot be read, if none is as accurate as the deployment
// asks, or if all that are were measured and cannot meet the objective. untaught is the file of a model whose
// sizes requests have to teach, since it runs with none that were tried, and why says more; "" for none.
func (c *checks) check(ctx context.Context, f *provider.Function, models []Model) (untaught, why string, err error) {
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
		return "", "", cmp.Or[error](c.tooSlow(f, models), hopeless)
	}
	return "", "", hopeless
}

// Check returns the error with which Deploy would refuse a function because of its models.
func Check(ctx context.Context, c *Controller, f *provider.Function) error {
	bundle, models, err := c.options.Bundles.Models(ctx, f)
	if err != nil {
		if err = web.BadRequest(c.checks.suggest(ctx, f, err)); bundle != "" {
			err = concealed{err, bundle}
		}
		return err
	}
	f = knowing(c.finder, f, models)
	if _, _, err = c.checks.check(ctx, f, models); err != nil {
		return concealed{refused(f, c.checks.suggest(ctx, f, err)), bundle}
	}
	return nil
}

// Hopeless says why a function's only model is too slow for its objective, nil if it is not, or if its times are not known
// yet. It asks what was predicted or measured, whatever the function's instances have executed.
func Hopeless(ctx context.Context, c *Controller, f *provider.Function) error {
	_, models, err := c.options.Bundles.Models(ctx, f)
	if err != nil || len(models) != 1 {
		return nil
	}
	f = knowing(c.finder, f, models)
	times := models[0].Profile
	if times == nil {
		if _, times, err = c.finder.Kept(f, models[0].File); err != nil || times == nil {
			return nil
		}
	}
	if why := c.rules.Hopeless(f, c.rules.Promised(f, times)); why != nil {
		return why
	}
	return nil
}

// tooSlow returns why neither the models nor the ways to cut them meet the objective: with the
// fastest of all. It returns nil if one of them does.
func (c *checks) tooSlow(f *provider.Function, models []Model) error {
	var all []capacity.Candidate
	for _, m := range models {
		switch {
		case m.Accuracy < f.Inference.Accuracy:
		case m.Profile != nil:
			all = append(all, c.rules.Promised(f, m.Profile)...)
		default:
			all = append(all, c.finder.Promised(f, m.File)...)
		}
	}
	if why := c.rules.Hopeless(f, all); why != nil {
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
	return web.BadRequest(fmt.Errorf("%s: %w", f.ModelFrom(), err))
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

// limitsMemory is the key of refusals of models that are too large for an instance.
const limitsMemory = "limits.memory"

// suggest adds to refusals of models that may not be cut whether cutting would help.
func (c *checks) suggest(ctx context.Context, f *provider.Function, err error) error {
	var why *annotation.Error
	if c.cuttable == nil || f.Inference.Partition != "" || !errors.As(err, &why) || !latency.TooSlow(why) && why.Key != limitsMemory {
		return err
	}
	var way string
	for _, m := range c.cuttable(ctx, f) {
		candidates := c.rules.Promised(f, m.Profile)
		if m.Accuracy < f.Inference.Accuracy || c.rules.Hopeless(f, candidates) != nil {
			continue
		}
		best := capacity.Fastest(candidates)
		each := best.Config.Share()
		way = fmt.Sprintf("%s: %s would serve it with %d instances of %dm and %d MiB in %v", annotation.InferPartition, annotation.PartitionAuto,
			best.Config.Members(), each.Quota(), each.Memory>>20, best.Exec.Round(time.Millisecond/10))
		break
	}
	if way == "" {
		return err
	}
	better := *why
	better.Why += "; " + way
	better.Example = ""
	return &better
}
