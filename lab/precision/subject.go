package precision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/python/quantise"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// The names of the variants.
const (
	original  = "fp32"
	quantised = "int8"
)

// The accuracies that the bundle of both variants states, in percent. Nothing measures them:
// the models have random weights.
const (
	originalAccuracy  = 76
	quantisedAccuracy = 74
)

// both is the image with both variants. That of one has the variant's name.
const both = "both:latest"

// subject is a model with its int8 forms.
type subject struct {
	*rig.Subject
	objective time.Duration
	maxBatch  int
	// made are the int8 forms that could be made.
	made []quantise.Made
}

// newSubject makes a model of the zoo and quantises it, as "faas-infer model variants" does
// without labelled data.
func newSubject(ctx context.Context, o rig.Options, name string, objective time.Duration, maxBatch int) (_ *subject, err error) {
	fmt.Fprintf(o.Log, "%s: quantising\n", name)
	made, err := rig.NewSubject(name)
	if err != nil {
		return nil, err
	}
	s := &subject{Subject: made, objective: objective, maxBatch: maxBatch}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	rows, err := quantise.Calibration(s.Model, nil)
	if err != nil {
		return nil, err
	}
	work := filepath.Join(s.Dir, quantised)
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	all, err := quantise.Run(ctx, quantise.Options{Model: s.File, Work: work, Rows: rows, Log: o.Log,
		Step: func(step string) { fmt.Fprintf(o.Log, "%s: %s\n", name, step) }})
	if err != nil {
		return nil, fmt.Errorf("quantise %s: %w", name, err)
	}
	why := ""
	for _, m := range all {
		if m.Error == "" {
			s.made = append(s.made, m)
		} else {
			why += "; " + m.Way + ": " + m.Error
		}
	}
	if len(s.made) == 0 {
		return nil, fmt.Errorf("there is no int8 form of %s%s", name, why)
	}
	return s, nil
}

// files are the model files of the variants, with the int8 form made in a way.
func (s *subject) files(m quantise.Made) map[string]string {
	return map[string]string{original: s.File, quantised: m.File}
}

// bundles writes an image of each variant, and one of both, into the provider's bundles.
func (s *subject) bundles(at *rig.Deployed, m quantise.Made) error {
	root := filepath.Join(at.State, "bundles")
	for variant, file := range s.files(m) {
		if _, err := bundle.WriteFile(root, variant+":latest", bundle.Manifest{}, file); err != nil {
			return err
		}
	}
	precise, cheap := float64(originalAccuracy), float64(quantisedAccuracy)
	manifest := bundle.Manifest{Engine: bundle.EngineONNX, Models: []bundle.ManifestModel{
		{Name: original, Model: "fp32.onnx", Accuracy: &precise}, {Name: quantised, Model: "int8.onnx", Accuracy: &cheap},
	}}
	_, err := bundle.WriteFiles(root, both, manifest, func(dir string) error {
		for variant, file := range s.files(m) {
			one, err := model.ReadFile(file)
			if err != nil {
				return err
			}
			if err := one.WriteFile(filepath.Join(dir, variant+".onnx")); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// annotations are those of the deployments, with more as key and value in turn.
func (s *subject) annotations(more ...string) map[string]string {
	a := map[string]string{"com.openfaas.slo.latency": s.objective.String(), "com.openfaas.infer.max-batch": fmt.Sprint(s.maxBatch)}
	for i := 0; i+1 < len(more); i += 2 {
		a[more[i]] = more[i+1]
	}
	return a
}

// target returns the requests to the function of a provider.
func (s *subject) target(at *rig.Deployed) (load.Target, error) {
	t, err := s.Target(at.URL + "/function/" + rig.FunctionName)
	t.SLO, t.Arrivals = s.objective, load.Poisson
	return t, err
}
