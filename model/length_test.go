package model_test

import (
	"testing"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestFreeLength(t *testing.T) {
	const whole, float = onnxpb.TensorProto_INT64, onnxpb.TensorProto_FLOAT
	m := copying(t, dimensions("ids", whole, "b", "tokens"), dimensions("mask", whole, "b", "tokens"), dimensions("speaker", float, "b", 3))
	l, err := m.FreeLength(tensor.Shapes{"ids": {1, 64}})
	if err != nil || l == nil || l.Length != 64 || l.Unit != "tokens" {
		t.Fatalf("%+v, %v", l, err)
	}
	if got := l.Shapes(256).String(); got != "ids:1x256,mask:1x256,speaker:1x3" {
		t.Errorf("256 tokens have the shapes %s", got)
	}
	if got := l.Elements(256); got != 515 {
		t.Errorf("256 tokens are %d elements, want 256 + 256 + 3", got)
	}
	if got := l.Max(tensor.Shapes{"ids": {1, 512}, "mask": {1, 400}}); got != 400 {
		t.Errorf("at most %d tokens, want 400", got)
	}
	if got := l.Max(nil); got != 0 {
		t.Errorf("at most %d tokens, want any number", got)
	}
	sound, err := copying(t, dimensions("sound", float, "b", "time", 80)).FreeLength(nil)
	if err != nil || sound == nil || sound.Unit != "steps" || sound.Shapes(10).String() != "sound:1x10x80" {
		t.Errorf("%+v, %v", sound, err)
	}
	for name, in := range map[string]*onnxpb.ValueInfoProto{
		"fixed": dimensions("x", float, "b", 7), "an image": dimensions("x", float, "b", 3, "h", "w"),
	} {
		if l, err := copying(t, in).FreeLength(nil); l != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
