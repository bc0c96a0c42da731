package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Defaults returns the annotations that a deployment's image sets, nil for none. They
// apply where the deployment does not set them. The error says why the image cannot be
// read. d has its namespace filled in, which need not be a namespace of functions.
// Implementations must not change d.
type Defaults func(ctx context.Context, d types.FunctionDeployment) (map[string]string, error)

// Of returns the annotations that a deployment's image sets. It returns nil if the
// receiver is nil or the deployment names no image.
func (defaults Defaults) Of(ctx context.Context, d types.FunctionDeployment) (map[string]string, error) {
	if defaults == nil || d.Image == "" {
		return nil, nil
	}
	return defaults(ctx, d)
}

// Complete adds the image's annotations to a deployment, unless the deployment has the
// key as an annotation or a label. It returns the parsed deployment and the added
// annotations. An error wraps an [annotation.Error]. If the image set the wrong
// annotation, the error says so, because the user will not find it in the stack file.
func Complete(d *types.FunctionDeployment, brought map[string]string) (in annotation.Inference, added map[string]string, err error) {
	added = fill(d, brought)
	in, err = annotation.Parse(*d)
	if wrong := new(annotation.Error); errors.As(err, &wrong) && has(&added, wrong.Key) {
		err = fmt.Errorf("annotation of the image %s: %w", d.Image, err)
	}
	return in, added, err
}

// fill adds the image's annotations that d does not have, and returns them.
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
