package v1alpha1

import "testing"

// The number in the scale subresource is the provider's if its annotation says the same, and
// otherwise somebody else's wish.
func TestScaled(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		instances *int64
		noted     string
		counted   int64
		scaled    bool
	}{
		"nothing":           {nil, "", -1, false},
		"replaced by hand":  {nil, "5", -1, false},
		"the provider's":    {number(5), "5", 5, false},
		"the provider's 0":  {number(0), "0", 0, false},
		"scaled":            {number(2), "5", -1, true},
		"scaled at first":   {number(2), "", -1, true},
		"scaled to 0":       {number(0), "5", -1, true},
		"somebody's number": {number(5), "five", -1, true},
	} {
		f := &Function{Spec: FunctionSpec{Instances: c.instances}}
		if c.noted != "" {
			f.Annotations = map[string]string{InstancesAnnotation: c.noted}
		}
		n, scaled := f.Scaled()
		if f.Counted() != c.counted || scaled != c.scaled || scaled && n != *c.instances {
			t.Errorf("%s: counted %d, scaled to %d, %v", name, f.Counted(), n, scaled)
		}
	}
}
