package provider

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

func (r *rig) described(t *testing.T, name string) (alone, listed types.FunctionStatus) {
	t.Helper()
	if err := json.Unmarshal(r.do("GET", "/system/function/"+name, "").Body.Bytes(), &alone); err != nil {
		t.Fatal(err)
	}
	var list []types.FunctionStatus
	if err := json.Unmarshal(r.do("GET", "/system/functions", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, of := range list {
		if of.Name == name {
			listed = of
		}
	}
	return alone, listed
}

func problemOf(s types.FunctionStatus) string {
	if s.Annotations == nil {
		return ""
	}
	return (*s.Annotations)[annotation.InferProblem]
}

// A function's status shows in an annotation why the function is not served. A deployment
// made from that status does not keep the annotation.
func TestWhyAFunctionIsNotServed(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	want := func(problem string) types.FunctionStatus {
		t.Helper()
		alone, listed := r.described(t, "mnist")
		if problemOf(alone) != problem || problemOf(listed) != problem {
			t.Errorf("described %q, listed %q, want %q", problemOf(alone), problemOf(listed), problem)
		}
		return alone
	}
	want("")
	r.controller.problem = "the requirements cannot be installed:\n  no such distribution"
	status := want("the requirements cannot be installed: no such distribution")
	if (*status.Annotations)[annotation.SLOLatency] != "50ms" || status.Replicas != 2 {
		t.Errorf("%+v", status)
	}
	r.deploy(t, func(d *types.FunctionDeployment) { d.Annotations = status.Annotations })
	r.controller.problem = ""
	want("")
	r.controller.problem = "first" + strings.Repeat(" word", 10000) + " last"
	if alone, _ := r.described(t, "mnist"); len(problemOf(alone)) > maxProblem+10 || !strings.HasPrefix(problemOf(alone), "first word") || !strings.HasSuffix(problemOf(alone), "word last") {
		t.Errorf("%d bytes", len(problemOf(alone)))
	}
}

// A function's status shows for which sizes of requests its objective holds, and a deployment made from that
// status does not keep it.
func TestStatusShowsTheReach(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	reach := func() string {
		alone, _ := r.described(t, "mnist")
		if alone.Annotations == nil {
			return ""
		}
		return (*alone.Annotations)[annotation.InferReach]
	}
	const says = "p99 ≤ 100ms up to 230 tokens on one core"
	r.controller.reach = says
	if got := reach(); got != says {
		t.Errorf("described %q", got)
	}
	alone, _ := r.described(t, "mnist")
	r.deploy(t, func(d *types.FunctionDeployment) { d.Annotations = alone.Annotations })
	r.controller.reach = ""
	if got := reach(); got != "" {
		t.Errorf("the deployment has kept %q", got)
	}
}

// A function that could not be restored says why.
func TestWhyAFunctionIsBroken(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	again := newRig(t, func(o *Options) { o.Store = r.store })
	again.controller.refuse = errors.New("no bundle mnist:latest")
	if err := again.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alone, listed := again.described(t, "mnist"); problemOf(alone) != "no bundle mnist:latest" || problemOf(listed) != problemOf(alone) {
		t.Errorf("described %q, listed %q", problemOf(alone), problemOf(listed))
	}
}

// refuses is a store that knows why the latest deployment of mnist was refused.
type refuses struct {
	Store
	why *string
}

func (r refuses) Refused(namespace, name string) string {
	if namespace != DefaultNamespace || name != "mnist" {
		return ""
	}
	return *r.why
}

// A function whose latest deployment was refused says so, and that the deployment before
// is served.
func TestWhatWasDeployedBeforeIsServed(t *testing.T) {
	why := ""
	r := newRig(t, func(o *Options) { o.Store = refuses{o.Store, &why} })
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "other" })
	for _, c := range []struct{ why, problem, want string }{
		{"", "", ""},
		{"spec.image is \"\"", "", "the previous deployment is served: spec.image is \"\""},
		{"spec.image is \"\"", "no node has room", "the previous deployment is served: spec.image is \"\"; no node has room"},
		{"", "", ""},
	} {
		why, r.controller.problem = c.why, c.problem
		if alone, listed := r.described(t, "mnist"); problemOf(alone) != c.want || problemOf(listed) != c.want {
			t.Errorf("described %q, listed %q, want %q", problemOf(alone), problemOf(listed), c.want)
		}
		if alone, listed := r.described(t, "other"); problemOf(alone) != c.problem || problemOf(listed) != c.problem {
			t.Errorf("another: described %q, listed %q, want %q", problemOf(alone), problemOf(listed), c.problem)
		}
	}
}
