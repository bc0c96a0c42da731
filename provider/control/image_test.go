package control

import (
	"testing"

	"github.com/faas-infer/faas-infer/provider"
)

// Instances are started with the deployment's declaration of images, so another
// declaration replaces them.
func TestImagesAreWhatInstancesAreStartedWith(t *testing.T) {
	try(t, func(r *rig) {
		images := func(form string) func(*provider.Function) {
			return func(f *provider.Function) { f.Inference.Image = form }
		}
		r.measured("f", "m", images("224x224"))
		r.answered("f", "m")
		for _, form := range []string{"96x96", "96x96 fit=crop", ""} {
			r.deploy("f", "m", images(form))
			r.until("instances that take "+form, func() bool {
				living := r.backend.living()
				for _, in := range living {
					if in.Images != form {
						return false
					}
				}
				return len(living) > 0
			})
			r.answered("f", "m")
		}
	})
}
