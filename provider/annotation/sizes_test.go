package annotation

import (
	"errors"
	"strings"
	"testing"
)

func TestParseShapes(t *testing.T) {
	got, err := Parse(deployment(map[string]string{InferShapes: "mask:1x64, ids:1x64", InferMaxShapes: "ids:1x512"}))
	if err != nil || got.Shapes != "ids:1x64,mask:1x64" || got.MaxShapes != "ids:1x512" {
		t.Errorf("the shapes are %q up to %q, %v", got.Shapes, got.MaxShapes, err)
	}
	for _, c := range []struct{ usual, most, key, why string }{
		{"", "", InferShapes, "it must give inputs whole shapes"},
		{"ids", "ids:1x8", InferShapes, "is not an input's name, a colon and its sizes"},
		{"ids:1x0", "ids:1x8", InferShapes, "sizes are whole numbers of at least 1"},
		{"ids:1x8,ids:1x9", "ids:1x8", InferShapes, "has two shapes"},
		{"ids:1x8", "ids:x", InferMaxShapes, "sizes are whole numbers of at least 1"},
		{"ids:1x9", "ids:1x8", InferMaxShapes, "must be at least 9, its size in " + InferShapes},
		{"ids:1x9", "ids:1x9x2", InferMaxShapes, "has 3 dimensions there and 2"},
	} {
		_, err := Parse(deployment(map[string]string{InferShapes: c.usual, InferMaxShapes: c.most}))
		if wrong := new(Error); !errors.As(err, &wrong) || wrong.Key != c.key || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q up to %q: %v, want an Error of %s that says %q", c.usual, c.most, err, c.key, c.why)
		}
	}
}

func TestParseMaxLength(t *testing.T) {
	for value, want := range map[string]struct {
		tokens int
		refuse bool
	}{"256": {256, false}, "256,refuse": {256, true}, " 8 , truncate ": {8, false}, "refuse": {0, true}, "truncate": {0, false}} {
		got, err := Parse(deployment(map[string]string{InferMaxLength: value}))
		if err != nil || got.MaxLength != want.tokens || got.RefuseLong != want.refuse {
			t.Errorf("%q: %d, %v, %v", value, got.MaxLength, got.RefuseLong, err)
		}
	}
	for _, value := range []string{"", "0", "-1", "many", "256,cut", "256,", ",refuse", "131073", "1e3", "256,refuse,8"} {
		_, err := Parse(deployment(map[string]string{InferMaxLength: value}))
		if wrong := new(Error); !errors.As(err, &wrong) || wrong.Key != InferMaxLength || !strings.Contains(err.Error(), "from 1 to 131072") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
