package latency_test

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// Profiles that were stored before there were sizes stay valid; others are of one size only.
func TestKeysTellSizesApart(t *testing.T) {
	finder := latency.NewFinder(latency.Finder{Engine: "engine", Machine: "machine"})
	key := func(in annotation.Inference) string {
		in.MaxBatch = 8
		return finder.Key("hash", &provider.Function{Inference: in})
	}
	const bare = "hash engine machine b≤8"
	for want, in := range map[string]annotation.Inference{
		"":                     {},
		" ids:1x64":            {Shapes: "ids:1x64", Image: "320x320"},
		" ids:1x64 ≤ids:1x512": {Shapes: "ids:1x64", MaxShapes: "ids:1x512"},
		" 320x240":             {Image: "320x240 fit=crop"},
	} {
		if got := key(in); got != bare+want {
			t.Errorf("%+v: the key %q, want %q", in, got, bare+want)
		}
	}
	texts := &provider.Function{Inference: annotation.Inference{MaxBatch: 8}, MaxTokens: 256}
	if got := finder.Key("hash", texts); got != bare+"  ≤256 tokens" {
		t.Errorf("texts of 256 tokens: the key %q", got)
	}
	if got := key(annotation.Inference{Image: "224x224"}); got != bare {
		t.Errorf("images of the assumed size: the key %q", got)
	}
}

// sized are models that note with which sizes they are prepared.
type sized struct {
	models
	seen []string
}

func (m *sized) Sized(s latency.Sizes) latency.Models {
	m.seen = append(m.seen, s.Key())
	return &m.models
}

func TestModelsGetTheFunctionsSizes(t *testing.T) {
	m := &sized{}
	finder := latency.NewFinder(latency.Finder{Models: m})
	for _, shapes := range []string{"", "ids:1x64"} {
		if _, err := finder.Ready(t.Context(), &provider.Function{Inference: annotation.Inference{Shapes: shapes}}, "file"); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(m.seen, ","); got != "ids:1x64" {
		t.Errorf("models were sized as %q, want once", got)
	}
}
