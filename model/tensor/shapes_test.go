package tensor

import (
	"strings"
	"testing"
)

func TestShapes(t *testing.T) {
	s, err := ParseShapes(" ids:1x128, a:b:3 ")
	if err != nil || s.String() != "a:b:3,ids:1x128" {
		t.Errorf("%v, %v", s, err)
	}
	if none, err := ParseShapes(" "); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	for text, want := range map[string]string{
		"ids": "an input's name", "ids:1x": `the size ""`, "ids:0": `the size "0"`, "a:1,a:2": "two shapes",
		"a:1048576x1048576x2": "too large", ":1": "an input's name", "a:1,": "an input's name",
	} {
		if _, err := ParseShapes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
