package control

import (
	"fmt"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// Model is a model that a function's instances may load: its only one, or a variant.
type Model struct {
	// Name is the variant's name, cluster.Whole if the function has one model only. Of is the
	// name of the bundle's model of which it is a variant: the same, unless it was generated.
	Name, Of string
	// File is the path of the model on this machine.
	File string
	// Images says how the model expects images, "" if it takes none.
	Images string
	// Text identifies how the model takes texts: its bundle's settings and tokenizer. Texts says it to people. Both
	// are "" if it takes none.
	Text, Texts string
	// Counter counts the tokens of requests' texts, nil if nothing does.
	Counter dispatch.Counter
	// Accuracy is in percent, 0 if it is not known.
	Accuracy float64
	// From is the name of the model that Plan cuts, Plan says how, and Profile has the predicted
	// times of the instances that run it together; "" and nil if the model is not cut.
	From    string
	Plan    *cut.Plan
	Profile *profiler.Profile
}

// revision is a deployment that is being prepared.
type revision struct {
	*provider.Function
	bundle  string
	models  []Model
	secrets map[string]string
	values  string
	policy  batching.Policy
}

// named adds a variant's name to an error about its model.
func named(variant string, err error) error {
	if variant == cluster.Whole {
		return err
	}
	return fmt.Errorf("model %s: %w", variant, err)
}
