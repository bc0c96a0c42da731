package cut_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// A master that reads the tensors of parts knows of them what the cut model says. An LSTM's
// tensors have the batch elsewhere.
func TestTensorsAsJSON(t *testing.T) {
	for model, how := range map[string]string{"mnist": "2x1", "lstm-2365": "whole", "bert-small": "rows 2"} {
		m, err := zoo.Make(model, 1)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cut.New(m)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for first := range c.Layers() {
			g, err := c.Group(first, first+1)
			if err != nil {
				t.Fatal(err)
			}
			named, err := g.Named(how)
			if err != nil {
				named = g.Whole()
			}
			parts, err := g.Cut(named)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				for _, want := range append(p.Inputs(), p.Outputs()...) {
					text, err := json.Marshal(want)
					if err != nil {
						t.Fatal(err)
					}
					var got cut.Tensor
					if err := json.Unmarshal(text, &got); err != nil {
						t.Fatalf("%s: %v", text, err)
					}
					shape := want.Shape(3)
					if got.Name != want.Name || got.As != want.As || got.Type() != want.Type() || !reflect.DeepEqual(got.Region, want.Region) ||
						!reflect.DeepEqual(got.Shape(3), shape) || !reflect.DeepEqual(got.At(shape), want.At(shape)) {
						t.Errorf("%s: %s became %+v", model, text, got)
					}
					seen++
				}
			}
		}
		if seen < 2*len(c.Layers()) {
			t.Errorf("%s: only %d tensors", model, seen)
		}
	}
}

func TestTensorsThatAreRefused(t *testing.T) {
	const good = `{"name":"x","as":"x","type":"FP32","shape":[97,4],"further":[98,4],"region":[[0,97],[1,3]]}`
	var read cut.Tensor
	if err := json.Unmarshal([]byte(good), &read); err != nil {
		t.Fatal(err)
	}
	for wrong, c := range map[string][2]string{
		"no name":            {`"name":"x"`, `"name":""`},
		"cannot be sent":     {`FP32`, `STRING`},
		"the shapes":         {`[98,4]`, `[98]`},
		"a dimension of -2":  {`[98,4]`, `[98,-2]`},
		"not of the shape":   {`,[1,3]`, ``},
		"not within":         {`[1,3]`, `[1,5]`},
		"region [0,97)×[3,3": {`[1,3]`, `[3,3]`},
	} {
		if err := json.Unmarshal([]byte(strings.Replace(good, c[0], c[1], 1)), &read); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func FuzzTensorJSON(f *testing.F) {
	f.Add(`{"name":"x","as":"x","type":"FP32","shape":[97,4],"further":[98,4],"region":[[0,97],[1,3]]}`)
	f.Add(`{"name":"x","as":"x rows first","type":"INT64","shape":[5,97],"further":[5,98],"region":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var read cut.Tensor
		if json.Unmarshal([]byte(text), &read) != nil {
			return
		}
		again, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		var second cut.Tensor
		if err := json.Unmarshal(again, &second); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if shape := read.Shape(3); shape != nil {
			read.At(shape)
		}
	})
}
