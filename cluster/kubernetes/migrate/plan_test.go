package migrate

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// existing is a Function object with an image and a mark, "" for none.
func existing(image, mark string) *v1alpha1.Function {
	f := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: "openfaas-fn", UID: "f1"}, Spec: v1alpha1.FunctionSpec{Image: image}}
	if mark != "" {
		f.Annotations = map[string]string{ImportedAnnotation: mark}
	}
	return f
}

// stateOf has the Deployment figlet, unless edit changes that, and a Function object, nil for none.
func stateOf(t *testing.T, f *v1alpha1.Function, edit func(*Origin)) State {
	t.Helper()
	o := fromDeployment(deployment(t))
	if edit != nil {
		edit(&o)
	}
	s := State{Origins: []Origin{o}, Functions: map[types.NamespacedName]*v1alpha1.Function{}}
	if o.Name == "" {
		s.Origins = nil
	}
	if f != nil {
		s.Functions[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}] = f
	}
	return s
}

func retire(n int32) func(*Origin) {
	return func(o *Origin) {
		o.Deployment.Labels[RetiredLabel] = "2"
		o.Deployment.Spec.Replicas = &n
	}
}

// scaledTo gives the Deployment a number of pods, as somebody else might.
func scaledTo(n int32) func(*Origin) {
	return func(o *Origin) { o.Deployment.Spec.Replicas = &n }
}

// lossy gives the function two things that have no field here.
func lossy(edit func(*Origin)) func(*Origin) {
	return func(o *Origin) {
		o.lose("the volume data")
		o.lose("the init container wait")
		if edit != nil {
			edit(o)
		}
	}
}

const image = "ghcr.io/openfaas/figlet:latest"

func TestPlan(t *testing.T) {
	const refusedLosses = "nothing: it would lose the volume data, the init container wait; --accept-losses moves it without that"
	for what, test := range map[string]struct {
		function *v1alpha1.Function
		edit     func(*Origin)
		choices  Choices
		want     string
	}{
		"new":                     {nil, nil, Choices{}, "create the function, scale the Deployment to 0"},
		"kept running":            {nil, nil, Choices{KeepRunning: true}, "create the function"},
		"an object alone":         {nil, func(o *Origin) { o.Deployment = nil }, Choices{}, "create the function"},
		"not chosen":              {nil, nil, Choices{Names: []string{"other"}}, ""},
		"chosen":                  {nil, nil, Choices{Names: []string{"figlet"}}, "create the function, scale the Deployment to 0"},
		"begun":                   {existing(image, ""), nil, Choices{}, "keep the function (it exists with the same image and other settings), scale the Deployment to 0"},
		"another image":           {existing("other", ""), nil, Choices{}, "nothing: it exists with the image other; --overwrite replaces it"},
		"another image, replaced": {existing("other", ""), nil, Choices{Overwrite: true}, "replace the function, scale the Deployment to 0"},
		"done":                    {existing(image, ""), retire(0), Choices{}, "keep the function (it exists with the same image and other settings)"},
		"done, and scaled up":     {existing(image, ""), retire(1), Choices{}, "keep the function (it exists with the same image and other settings), scale the Deployment to 0"},
		"unreadable":              {nil, func(o *Origin) { o.Err = errors.New("no good") }, Choices{}, "nothing: no good"},
		"lossy":                   {nil, lossy(nil), Choices{}, refusedLosses},
		"lossy, kept running":     {nil, lossy(nil), Choices{KeepRunning: true}, refusedLosses},
		"lossy, replaced":         {existing("other", ""), lossy(nil), Choices{Overwrite: true}, refusedLosses},
		"lossy, begun":            {existing(image, ""), lossy(nil), Choices{}, refusedLosses},
		"lossy, done":             {existing(image, ""), lossy(retire(0)), Choices{}, "keep the function (it exists with the same image and other settings)"},
		"lossy, accepted":         {nil, lossy(nil), Choices{AcceptLosses: true}, "create the function, scale the Deployment to 0"},
	} {
		steps := Plan(stateOf(t, test.function, test.edit), test.choices)
		got := ""
		if len(steps) > 0 {
			got = steps[0].String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

// A function starts with as many instances as faas-netes has pods. Its spec alone decides whether it
// has been changed.
func TestPlanReplicas(t *testing.T) {
	s := Plan(stateOf(t, nil, nil), Choices{})[0]
	if s.spec.Replicas == nil || *s.spec.Replicas != 2 || hash(s.spec) != hash(s.Spec) {
		t.Errorf("%+v", s.spec)
	}
	if s.spec.Instances = s.spec.Replicas; hash(s.spec) != hash(s.Spec) {
		t.Error("load changes the hash")
	}
	s = Plan(stateOf(t, nil, func(o *Origin) { o.Spec.Annotations["com.openfaas.slo.latency"] = "1s" }), Choices{})[0]
	if s.spec.Replicas != nil {
		t.Error("a model has a number of instances")
	}
	none := int32(0)
	if s = Plan(stateOf(t, nil, func(o *Origin) { o.Deployment.Spec.Replicas = &none }), Choices{})[0]; s.spec.Replicas != nil {
		t.Error("a function at zero has a number of instances")
	}
	done := existing(image, "x")
	done.Spec = s.Spec
	if s = Plan(stateOf(t, done, retire(0)), Choices{})[0]; s.String() != "keep the function" {
		t.Error(s)
	}
}

func TestPlanUndo(t *testing.T) {
	own := mark{Hash: hash(v1alpha1.FunctionSpec{Image: image})}.String()
	replaced := mark{Hash: hash(v1alpha1.FunctionSpec{Image: image}), Before: &v1alpha1.FunctionSpec{Image: "before"}}.String()
	for what, test := range map[string]struct {
		function *v1alpha1.Function
		edit     func(*Origin)
		choices  Choices
		want     string
	}{
		"never imported":       {existing(image, ""), nil, Choices{}, ""},
		"imported":             {existing(image, own), retire(0), Choices{}, "scale the Deployment to 2, delete the function"},
		"still running":        {existing(image, own), nil, Choices{}, "delete the function"},
		"not chosen":           {existing(image, own), retire(0), Choices{Names: []string{"other"}}, ""},
		"replaced":             {existing(image, replaced), retire(0), Choices{}, "scale the Deployment to 2, restore the function (as it was before the import)"},
		"existed before":       {existing(image, ""), retire(0), Choices{}, "scale the Deployment to 2, keep the function (no import has made it)"},
		"deleted since":        {nil, retire(0), Choices{}, "scale the Deployment to 2, delete the function (it is gone already)"},
		"changed since":        {existing("newer", own), retire(0), Choices{}, "nothing: it has been changed since the import; --overwrite gives the changes up"},
		"changed since, given": {existing("newer", own), retire(0), Choices{Overwrite: true}, "scale the Deployment to 2, delete the function"},
		"nothing left":         {existing(image, own), func(o *Origin) { o.Name = "" }, Choices{}, "nothing: faas-netes' Deployment and object are gone, so nothing would serve it"},
		"an object alone":      {existing(image, own), func(o *Origin) { o.Deployment = nil }, Choices{Overwrite: true}, "nothing: it has no Deployment of faas-netes, so nothing would serve it"},
		"replaced, alone":      {existing(image, replaced), func(o *Origin) { o.Deployment = nil }, Choices{}, "restore the function (as it was before the import)"},
		"at 0, not retired":    {existing(image, own), scaledTo(0), Choices{}, "nothing: faas-netes' Deployment has no pods, so nothing would serve it; scale the Deployment up first"},
		"lossy, imported":      {existing(image, own), lossy(retire(0)), Choices{}, "scale the Deployment to 2, delete the function"},
		"an edited label":      {existing(image, own), func(o *Origin) { o.Deployment.Labels[RetiredLabel] = "many" }, Choices{}, "scale the Deployment to 1, delete the function"},
	} {
		steps := PlanUndo(stateOf(t, test.function, test.edit), test.choices)
		got := ""
		if len(steps) > 0 {
			got = steps[0].String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	c := Choices{Names: []string{"figlet", "none"}}
	if got := c.Unknown(Plan(stateOf(t, nil, nil), c)); len(got) != 1 || got[0] != "none" {
		t.Error(got)
	}
}

// The table has a line for each function, and what it loses.
func TestTable(t *testing.T) {
	steps := Plan(stateOf(t, nil, func(o *Origin) { o.lose("the volume data") }), Choices{AcceptLosses: true})
	refused := steps[0]
	refused.refuse("no good")
	var out strings.Builder
	if err := Table(&out, append(steps, refused)); err != nil {
		t.Fatal(err)
	}
	const want = `FUNCTION  NAMESPACE    FROM        IMAGE                           PODS  TO DO
figlet    openfaas-fn  Deployment  ghcr.io/openfaas/figlet:latest  2     create the function, scale the Deployment to 0
figlet    openfaas-fn  Deployment  ghcr.io/openfaas/figlet:latest  2     nothing: no good
figlet.openfaas-fn is not given the volume data
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
