package annotation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
)

func TestCanary(t *testing.T) {
	parse := func(pairs ...string) (Inference, error) {
		all := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return Parse(types.FunctionDeployment{Service: "f", Image: "f:latest", Annotations: &all})
	}
	in, err := parse(InferCanary, "5, 25,50", InferCanaryMargin, "0.5", InferCanaryTimeout, "30s", SLOLatency, "50ms", InferCanaryMirror, "10")
	c := in.Canary.Completed()
	if err != nil || !slices.Equal(c.Shares(), []int{5, 25, 50}) || c.Mirror != 10 || c.Margin != 0.5 || c.Different != DefaultCanaryDifferent || c.Timeout != 30*time.Second {
		t.Fatalf("%+v, %v", c, err)
	}
	if in, err = parse(InferCanary, "header"); err != nil || !in.Canary.Gradual || len(in.Canary.Shares()) > 0 {
		t.Fatalf("%+v, %v", in.Canary, err)
	}
	for wrong, pairs := range map[string][]string{
		"from 1 to 100":        {InferCanary, "0"},
		"1 to 100":             {InferCanary, "101"},
		"25 comes after 25":    {InferCanary, "5,25,25"},
		"commas":               {InferCanary, "ten"},
		"only with":            {InferCanaryMargin, "2"},
		"above 0":              {InferCanary, "10", InferCanaryMargin, "0"},
		"duration":             {InferCanary, "10", InferCanaryTimeout, "soon"},
		"a program may change": {InferCanary, "10", InferCanaryMirror, "10"},
		"at most 20":           {InferCanary, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21"},
	} {
		if _, err := parse(pairs...); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: %v", pairs, err)
		}
	}
}
