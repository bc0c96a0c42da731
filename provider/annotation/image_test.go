package annotation

import (
	"errors"
	"strings"
	"testing"
)

func TestParseImage(t *testing.T) {
	got, err := Parse(deployment(map[string]string{InferImage: " 224x224\tfit=crop  mean=0.5 "}))
	if err != nil || got.Image != "224x224 fit=crop mean=0.5" {
		t.Errorf("Image is %q, %v", got.Image, err)
	}
	for value, why := range map[string]string{
		"":              "must begin with the width and height",
		"true":          "must begin with the width and height",
		"224x224 crop":  "fit=, colour=, range=, mean= and std=",
		"224x224 fit=x": "fit is one of stretch, crop, pad",
	} {
		_, err := Parse(deployment(map[string]string{InferImage: value}))
		if wrong := new(Error); !errors.As(err, &wrong) || wrong.Key != InferImage || !strings.Contains(err.Error(), why) || wrong.Example == "" {
			t.Errorf("%q: %v, want an Error that names the key and says %q", value, err, why)
		}
	}
}
