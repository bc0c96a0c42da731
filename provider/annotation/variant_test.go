package annotation

import (
	"errors"
	"strings"
	"testing"
)

func TestVariants(t *testing.T) {
	in, err := Parse(deployment(map[string]string{SLOAccuracy: "70.5", InferVariants: "resnet50, mobilenet"}))
	if err != nil || in.Accuracy != 70.5 || in.Variants != "resnet50,mobilenet" {
		t.Fatalf("%+v, %v", in, err)
	}
	if !in.Admits("mobilenet") || in.Admits("mobile") {
		t.Error("the named variants may serve, and no others")
	}
	if in, err = Parse(deployment(map[string]string{InferVariants: "bundle"})); err != nil || !in.Admits("any") {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err = Parse(deployment(map[string]string{InferVariants: "auto", InferPrefer: "accuracy"})); err != nil || !in.Auto || !in.Accurate || !in.Admits("any") {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err = Parse(deployment(map[string]string{InferPrefer: "cost"})); err != nil || in.Auto || in.Accurate {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestVariantsRefused(t *testing.T) {
	many := strings.Repeat("a,", MaxVariants) + "b"
	for _, c := range []struct{ key, value string }{
		{SLOAccuracy, "101"}, {SLOAccuracy, "-1"}, {SLOAccuracy, "NaN"}, {SLOAccuracy, ""}, {SLOAccuracy, "1e1"}, {SLOAccuracy, "0x1p5"}, {SLOAccuracy, "1_0"}, {SLOAccuracy, "Inf"}, {SLOAccuracy, " 70"}, {SLOAccuracy, "+70"},
		{InferVariants, ""}, {InferVariants, "a,,b"}, {InferVariants, "a,a"}, {InferVariants, "../a"}, {InferVariants, many},
		{InferPrefer, ""}, {InferPrefer, "speed"},
	} {
		_, err := Parse(deployment(map[string]string{c.key: c.value}))
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Key != c.key {
			t.Errorf("%s = %q: %v", c.key, c.value, err)
		}
	}
}
