package objects

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/store"
)

func object(edit func(f *v1alpha1.Function)) *v1alpha1.Function {
	f := &v1alpha1.Function{Spec: v1alpha1.FunctionSpec{Image: "i:1", Annotations: map[string]string{"com.openfaas.slo.latency": "50ms"}}}
	f.Name, f.Namespace, f.Annotations = "f", "openfaas-fn", map[string]string{}
	if edit != nil {
		edit(f)
	}
	return f
}

// at is an Objects with a clock only.
var at = &Objects{now: time.Now}

func of(n int64) *int64 { return &n }

func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		stated            *int64
		least, most, want uint64
	}{
		{nil, 0, 0, 0}, {nil, 2, 5, 2}, {of(0), 2, 5, 0}, {of(1), 2, 5, 2}, {of(3), 2, 5, 3}, {of(9), 2, 5, 5}, {of(9), 0, 0, 9}, {of(1 << 60), 0, 0, 10000},
	} {
		if got := replicas(c.stated, c.least, c.most); got != c.want {
			t.Errorf("%v in %d..%d: %d, not %d", c.stated, c.least, c.most, got, c.want)
		}
	}
}

// A spec that kubectl has changed does not match the stamp of the spec before.
func TestStamp(t *testing.T) {
	f := object(nil)
	r, err := at.record(f)
	if err != nil || stamped(f, r) {
		t.Errorf("never stamped: %+v, %v", r, err)
	}
	deployed := time.Date(2026, 11, 22, 12, 0, 0, 5000, time.UTC)
	for key, value := range stamp(7, r.Hash, deployed, "") {
		f.Annotations[key] = value.(string)
	}
	if r, err = at.record(f); err != nil || !stamped(f, r) || r.Revision != 7 || !r.UpdatedAt.Equal(deployed) {
		t.Errorf("stamped: %+v, %v", r, err)
	}
	f.Spec.Replicas = of(3)
	if r, err = at.record(f); err != nil || !stamped(f, r) || r.Replicas != 3 {
		t.Errorf("scaled: %+v, %v", r, err)
	}
	f.Spec.Environment = map[string]string{"A": "1"}
	if r, err = at.record(f); err != nil || stamped(f, r) {
		t.Errorf("changed: %+v, %v", r, err)
	}
}

func TestNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(f *v1alpha1.Function)
		want string
	}{
		"annotation": {func(f *v1alpha1.Function) { f.Spec.Annotations["com.openfaas.slo.latency"] = "fast" }, "com.openfaas.slo.latency"},
		"image":      {func(f *v1alpha1.Function) { f.Spec.Image = " " }, "image"},
		"replicas":   {func(f *v1alpha1.Function) { f.Spec.Replicas = of(-1) }, "spec.replicas"},
		"memory":     {func(f *v1alpha1.Function) { f.Spec.Limits = &v1alpha1.Resources{Memory: "much"} }, "memory"},
	} {
		if _, err := at.record(object(c.edit)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, revision := range []string{"", "-1", "x", "18446744073709551615", "99999999999999999999"} {
		if n := at.revisionOf(object(func(f *v1alpha1.Function) { f.Annotations[v1alpha1.RevisionAnnotation] = revision })); n != 0 {
			t.Errorf("%q is revision %d", revision, n)
		}
	}
}

// Replicas that equal the deployment's minimum are left out of the spec, so a change of
// the minimum counts. Replicas that the spec had stay in it.
func TestStated(t *testing.T) {
	r, err := at.record(object(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := at.stated(nil, r); got != nil {
		t.Errorf("%d", *got)
	}
	if got := at.stated(object(func(f *v1alpha1.Function) { f.Spec.Replicas = of(4) }), r); got == nil || *got != 0 {
		t.Errorf("%v", got)
	}
	r.Replicas = 2
	if got := at.stated(nil, r); got == nil || *got != 2 {
		t.Errorf("%v", got)
	}
}

// Revisions rise, whatever was seen, also for concurrent callers, and are plausible.
func TestRevisions(t *testing.T) {
	s := &Objects{now: time.Now}
	far := uint64(time.Now().Add(skew - time.Second).UnixMicro())
	s.noteChanged(object(func(f *v1alpha1.Function) { f.Annotations[v1alpha1.RevisionAnnotation] = fmt.Sprint(far) }))
	before, _ := s.NextRevision()
	if before != far+1 {
		t.Errorf("%d after %d", before, far)
	}
	s.seen(3)
	after, _ := s.NextRevision()
	if after <= before {
		t.Errorf("%d after %d", after, before)
	}
	if got := s.revisionOf(object(func(f *v1alpha1.Function) { f.Annotations[v1alpha1.RevisionAnnotation] = fmt.Sprint(after) })); got != after {
		t.Errorf("revision %d is read as %d", after, got)
	}
}

// record reads or refuses any object.
func FuzzRecord(f *testing.F) {
	f.Add(`{"metadata":{"name":"f","namespace":"n","annotations":{"faas-infer.dev/revision":"7"}},"spec":{"image":"i","replicas":3}}`)
	f.Add(`{"spec":{"image":"i","annotations":{"com.openfaas.scale.max":"0"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var o v1alpha1.Function
		if json.Unmarshal([]byte(text), &o) != nil {
			return
		}
		r, err := at.record(&o)
		if err == nil && r.Hash != store.Hash(r.Deployment) {
			t.Errorf("%+v", r)
		}
		at.stated(&o, r)
	})
}
