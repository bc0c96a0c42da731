package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The number in the scale subresource is the provider's if its annotation says the same, and
// otherwise somebody else's. It is a wish only if it came through the subresource: GitOps applies
// an exported number again and again.
func TestScaled(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	const kubectl, gitops = "scale", ""
	for name, c := range map[string]struct {
		instances *int64
		noted     string
		through   string
		counted   int64
		scaled    bool
	}{
		"nothing":             {nil, "", gitops, -1, false},
		"removed by hand":     {nil, "5", gitops, -1, false},
		"the provider's":      {number(5), "5", gitops, 5, false},
		"the provider's 0":    {number(0), "0", gitops, 0, false},
		"scaled and taken":    {number(5), "5", kubectl, 5, false},
		"scaled":              {number(2), "5", kubectl, -1, true},
		"scaled at first":     {number(2), "", kubectl, -1, true},
		"scaled to 0":         {number(0), "5", kubectl, -1, true},
		"somebody's number":   {number(5), "five", kubectl, -1, true},
		"below any number":    {number(5), "-5", kubectl, -1, true},
		"applied":             {number(3), "5", gitops, -1, false},
		"applied at first":    {number(3), "", gitops, -1, true},
		"applied with status": {number(3), "5", "status", -1, false},
	} {
		f := &Function{Spec: FunctionSpec{Instances: c.instances}}
		f.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "leader"}, {Manager: "somebody", Subresource: c.through}}
		if c.noted != "" {
			f.Annotations = map[string]string{InstancesAnnotation: c.noted}
		}
		n, scaled := f.Scaled()
		if f.Counted() != c.counted || scaled != c.scaled || scaled && n != *c.instances {
			t.Errorf("%s: counted %d, scaled to %d, %v", name, f.Counted(), n, scaled)
		}
		if foreign := c.instances != nil && c.counted < 0; f.Overwritten() != foreign {
			t.Errorf("%s: overwritten is %v", name, !foreign)
		}
	}
}
