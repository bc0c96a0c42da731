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
		r.backend.widen(8000)
		r.measured("any", twoVariants)
		r.measured("good", twoVariants, accurate(75))
		for name, want := range map[string]string{"any": "slim", "good": "precise"} {
			r.answered(name, "precise") // Both need the smallest share.
			if n := r.load(name, time.Millisecond, 3*time.Minute); n > 0 {
				t.Errorf("%s: %d requests failed", name, n)
			}
			r.answered(name, want)
			r.until("its instances are gone", func() bool { return r.describe(name).Ready == 0 })
		}
	})
}

// With com.openfaas.infer.prefer: accuracy the accurate one answers, although it costs more.
func TestPreferredAccuracyAnswers(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(8000)
		r.measured("fn", twoVariants, func(f *provider.Function) { f.Inference.Accurate = true })
		if n := r.load("fn", time.Millisecond, 3*time.Minute); n > 0 {
			t.Errorf("%d requests failed", n)
		}
		r.answered("fn", "precise")
		for _, in := range r.backend.living() {
			if in.Artefact.Name != "precise" {
				t.Errorf("%s runs", in.Artefact.Name)
			}
		}
	})
}

// A deployment with a higher accuracy replaces the variant that runs. No request fails
// meanwhile, and afterwards only the accurate one answers.
func TestUpgradeReplacesVariant(t *testing.T) {
	try(t, func(r *rig) {
		named := serving("slim")
		r.measured("fn", twoVariants, named)
		r.answered("fn", "slim")
		for _, step := range []struct {
			edit func(*provider.Function)
			want string
		}{{accurate(75), "precise"}, {named, "slim"}} {
			failed := make(chan int)
			go func() { failed <- r.load("fn", 5*time.Millisecond, 20*time.Second) }()
			time.Sleep(2 * time.Second)
			r.deploy("fn", twoVariants, step.edit)
			if n := <-failed; n > 0 {
				t.Errorf("%d requests failed", n)
			}
			r.answered("fn", step.want)
			for _, in := range r.backend.living() {
				if in.Artefact.Name != step.want {
					t.Errorf("%s still runs", in.Artefact.Name)
				}
			}
		}
	})
}

// A provider that starts takes over the instances of all variants.
func TestVariantsAreTakenOver(t *testing.T) {
	try(t, func(r *rig) {
		named := serving("slim")
		r.measured("any", twoVariants, named)
		r.measured("good", twoVariants, accurate(75))
		r.answered("any", "slim")
		r.answered("good", "precise")
		before := r.backend.asked()
		r.end()
		r.open()
		r.Restoring(func(string) bool { return true }) // The provider says so before it deploys.
		r.run()
		r.revision = 0
		r.deploy("any", twoVariants, named)
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
		if _, err := r.corrections.Correction(full("fn") + "/precise"); err != nil {
			t.Errorf("the correction: %v", err)
		}
		if err := r.Remove(t.Context(), full("fn")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.corrections.Correction(full("fn") + "/precise"); err == nil {
			t.Error("the correction outlives its function")
		}
	})
}
