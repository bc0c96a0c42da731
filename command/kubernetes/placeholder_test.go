package kubernetes

import (
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/scaling/nodes"
)

func TestOpenPlaceholders(t *testing.T) {
	for name, test := range map[string]struct {
		flags    placeholderFlags
		selector string
		on       bool
		err      string
	}{
		"off by default":     {placeholderFlags{}, "pool in (a, b)", false, ""},
		"on":                 {placeholderFlags{"pause", "low"}, "pool=models", true, ""},
		"a class alone":      {placeholderFlags{"", "low"}, "", false, "--placeholder-priority-class"},
		"a set of selectors": {placeholderFlags{"pause", ""}, "pool in (a, b)", false, "--placeholder-image: node selector"},
	} {
		p := &platform{flags: &providerFlags{placeholders: test.flags, nodeSelector: test.selector}, clients: clients{core: fake.NewClientset()}}
		var o control.Options
		err := p.openPlaceholders(&o)
		if (o.NodesWanted != nil) != test.on || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, on: %v", name, err, o.NodesWanted != nil)
		}
	}
}

func TestMissingNodes(t *testing.T) {
	if missingNodes(nil) != nil {
		t.Error("nothing is known, and some are missing")
	}
	size := cluster.Resources{CPU: 4000}
	got := missingNodes([]nodes.Wanted{{Kind: nodes.CPU, Count: 1, Present: 2}, {Kind: nodes.GPU, Count: 3, Present: 2, Size: size}})
	if len(got) != 2 || got[0].Count != 0 || got[0].GPU || got[1].Count != 1 || !got[1].GPU || got[1].Size != size {
		t.Errorf("%+v", got)
	}
}
