package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Defaults tells which annotations a deployment has from its image where it says
// nothing itself; nil for none. The error says why the image cannot be read. The
// deployment has its namespace, which need not be one of functions, and is not to be
// changed.
type Defaults func(ctx context.Context, d types.FunctionDeployment) (map[string]string, error)

// Of is what an image brings along for a deployment: nothing where nobody can tell.
func (defaults Defaults) Of(ctx context.Context, d types.FunctionDeployment) (map[string]string, error) {
	if defaults == nil || d.Image == "" {
		return nil, nil
	}
	return defaults(ctx, d)
}

// Complete adds to a deployment the annotations that its image brings along and whose
// keys it has neither as an annotation nor as a label. It returns what it asks for then
// and what was added. An error is [annotation.Error]'s; where what cannot be read is the
// image's, it says so: it is not in the stack file.
func Complete(d *types.FunctionDeployment, brought map[string]string) (in annotation.Inference, added map[string]string, err error) {
	added = fill(d, brought)
	in, err = annotation.Parse(*d)
	if wrong := new(annotation.Error); errors.As(err, &wrong) && has(&added, wrong.Key) {
		err = fmt.Errorf("the annotations that the image %s brings along: %w", d.Image, err)
	}
	return in, added, err
}

// fill is what Complete adds.
func fill(d *types.FunctionDeployment, brought map[string]string) map[string]string {
	added := map[string]string{}
	for key, value := range brought {
		if !has(d.Annotations, key) && !has(d.Labels, key) {
			added[key] = value
		}
	}
	if len(added) == 0 {
		return nil
	}
	all := maps.Clone(added)
	if d.Annotations != nil {
		maps.Copy(all, *d.Annotations)
	}
	d.Annotations = &all
	return added
}

func has(values *map[string]string, key string) bool {
	if values == nil {
		return false
	}
	_, ok := (*values)[key]
	return ok
}
