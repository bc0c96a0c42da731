package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// twoVariants is the image of an application with two variants.
const twoVariants = "variants:precise=80,slim=70"

func accurate(percent float64) func(*provider.Function) {
	return func(f *provider.Function) { f.Inference.Accuracy = percent }
}

// The cheapest variant that is accurate enough answers.
func TestCheapestAccurateVariantAnswers(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("any", twoVariants)
		r.measured("good", twoVariants, accurate(75))
		r.answered("any", "slim")
		r.answered("good", "precise")
		for _, in := range r.backend.living() {
			if want := map[string]string{full("any"): "slim", full("good"): "precise"}[in.Function]; in.Artefact.Name != want {
				t.Errorf("%s runs %q, want %q", in.Function, in.Artefact.Name, want)
			}
		}
	})
}

// A deployment with a higher accuracy replaces the variant that runs. No request fails
// meanwhile, and afterwards only the accurate one answers.
func TestUpgradeReplacesVariant(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", twoVariants)
		r.answered("fn", "slim")
		failed := make(chan int)
		go func() { failed <- r.load("fn", 5*time.Millisecond, 20*time.Second) }()
		time.Sleep(2 * time.Second)
		r.deploy("fn", twoVariants, accurate(75))
		if n := <-failed; n > 0 {
			t.Errorf("%d requests failed", n)
		}
		r.answered("fn", "precise")
		for _, in := range r.backend.living() {
			if in.Artefact.Name != "precise" {
				t.Errorf("%s still runs", in.Artefact.Name)
			}
		}
		// And back: the cheaper one is enough.
		r.deploy("fn", twoVariants, accurate(60))
		go func() { failed <- r.load("fn", 5*time.Millisecond, 120*time.Second) }()
		if n := <-failed; n > 0 {
			t.Errorf("%d requests failed", n)
		}
		r.answered("fn", "slim")
	})
}

// A provider that starts takes over the instances of all variants.
func TestVariantsAreTakenOver(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("any", twoVariants)
		r.measured("good", twoVariants, accurate(75))
		r.answered("any", "slim")
		r.answered("good", "precise")
		before := r.backend.asked()
		r.end()
		r.open()
		r.run()
		r.revision = 0
		r.deploy("any", twoVariants)
		r.deploy("good", twoVariants, accurate(75))
		r.answered("any", "slim")
		r.answered("good", "precise")
		if n := r.backend.asked(); n != before {
			t.Errorf("%d instances were started anew", n-before)
		}
	})
}

// A variant that cannot be measured does not keep the others from serving.
func TestOneVariantFails(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", "variants:slow=90,slim=70")
		r.answered("fn", "slim")
		if d := r.describe("fn"); d.Problem != "" {
			t.Errorf("problem: %s", d.Problem)
		}
	})
}

func TestAccuracyThatNothingReaches(t *testing.T) {
	try(t, func(r *rig) {
		for image, want := range map[string]string{twoVariants: "the nearest, precise, has 80", "plain": "the accuracy of no model"} {
			_, err := r.Deploy(t.Context(), r.function("fn", image, accurate(85)))
			var wrong *annotation.Error
			if !errors.As(err, &wrong) || wrong.Key != annotation.SLOAccuracy || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", image, err)
			}
		}
	})
}

// The times of each variant are corrected and stored by itself, and forgotten with the function.
func TestCorrectionsByVariant(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(func(cluster.Config) float64 { return 2 })
		r.measured("fn", twoVariants)
		if n := r.load("fn", 20*time.Millisecond, 3*time.Minute); n > 0 {
			t.Errorf("%d requests failed", n)
		}
		if _, err := r.corrections.Correction(full("fn") + "/slim"); err != nil {
			t.Errorf("slim's correction: %v", err)
		}
		if err := r.Remove(t.Context(), full("fn")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.corrections.Correction(full("fn") + "/slim"); err == nil {
			t.Error("the correction outlives its function")
		}
	})
}
