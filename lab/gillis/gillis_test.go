package gillis

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model/cut"
)

// One of each figure: ours is above the published system and the paper.
func TestEvaluation(t *testing.T) {
	e := &evaluation{ctx: t.Context(), report: report.New("test", time.Now()), models: make(map[string]*cut.Model)}
	if err := e.measureCodec(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return e.speedup("lambda", "vgg-11", 1.6) },
		func() error { return e.speedup("knix", "resnet-34", 1.4) },
		func() error { return e.pipeline("wrn-50-4", 9.2) },
		func() error { return e.cost("vgg-11", 500, 0) },
		func() error { return e.cost("vgg-11", 100, 0) },
		func() error { return e.leastSLO("resnet-50") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	values, notes := map[string]float64{}, map[string]string{}
	for _, x := range e.report.Results {
		values[x.Name], notes[x.Name] = x.Value, x.Note
	}
	for prefix, paper := range map[string]float64{"speedup.lambda.vgg-11": 1.6, "speedup.knix.resnet-34": 1.3, "over_pipeline.wrn-50-4": 9.2} {
		if theirs, ours := values[prefix+".gillis"], values[prefix+".ours"]; theirs < 1 || ours < theirs || ours < paper {
			t.Errorf("%s: %.2f, ours %.2f, the paper's %.2f", prefix, theirs, ours, paper)
		}
	}
	if core, slow, quick := values["least_slo_ms.resnet-50.core"], values["least_slo_ms.resnet-50.partition.1gbit"], values["least_slo_ms.resnet-50.partition.10gbit"]; !(quick <= slow && slow <= core && quick > core/16) {
		t.Errorf("resnet-50 takes %v on a core, %v and %v cut", core, slow, quick)
	}
	exact := values["cost_ms.vgg-11.500ms.exact"]
	if exact <= 0 {
		t.Errorf("the exact plan costs %v: %s", exact, notes["cost_ms.vgg-11.500ms.exact"])
	}
	if note := notes["cost_ms.vgg-11.100ms.exact"]; !strings.Contains(note, "no plan is that fast") {
		t.Errorf("an SLO that nothing meets: %q", note)
	}
}
