package lambda

import (
	"math"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// Eq. 1 of BATCH §II-B: a thousand calls of 2 s with 3008 MB cost
// 2·(3008/1024)·1000·1.66667e-5 + 1000·2e-7 = 0.0979 + 0.0002 $.
func TestSection2Cost(t *testing.T) {
	p := DefaultPricing().Price(cluster.Resources{Memory: 3008 << 20})
	if got := 1000 * (2*p.PerSecond + p.PerCall); math.Abs(got-0.0981167) > 1e-6 {
		t.Errorf("%v $", got)
	}
}

// BATCH §II-D has ResNet-v2 from 1280 MB on, and Lambda's largest size was 3008 MB. With
// the release's polynomials, one request of ResNet-v2 takes 1.527 s there and 20 take 12.41
// s. BATCH's table of measured times has 1.73 and 14.09 s.
func TestService(t *testing.T) {
	for _, c := range []struct {
		model         string
		memory, batch int
		want          float64
	}{
		{"resnet-v2", 3008, 1, 1.527}, {"resnet-v2", 3008, 20, 12.409}, {"resnet-v2", 1280, 1, 2.607},
		{"inception-v4", 3008, 1, 1.008}, {"inception-v4", 3008, 20, 11.267},
		{"resnet-50", 1280, 1, 0.496}, {"resnet-50", 3008, 20, 9.386},
	} {
		times, err := Service(c.model, c.memory)
		if err != nil {
			t.Fatal(err)
		}
		if got := times[c.batch-1]; math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%s with %d MB, a batch of %d: %v s, want %v", c.model, c.memory, c.batch, got, c.want)
		}
	}
}

// Every time is positive, and a larger batch takes longer.
func TestServiceRises(t *testing.T) {
	if n := len(Memories()); n != 28 {
		t.Errorf("%d sizes", n)
	}
	for _, model := range Models() {
		for _, m := range Memories() {
			times, err := Service(model, m)
			if err != nil {
				t.Fatal(err)
			}
			last := 0.0
			for k, s := range times {
				if !(s > last) {
					t.Errorf("%s with %d MB: a batch of %d takes %v s after %v", model, m, k+1, s, last)
				}
				last = s
			}
		}
	}
}

func TestServiceRefuses(t *testing.T) {
	for _, c := range []struct {
		model  string
		memory int
		want   string
	}{
		{"bert", 3008, `of model "bert": it must be one of inception-v4, resnet-50, resnet-v2`},
		{"resnet-v2", 128, "128 MB: it must be from 1280 to 3008 MB"},
	} {
		if _, err := Service(c.model, c.memory); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if Millicores(1769) != 1000 || Millicores(3008) != 1700 {
		t.Errorf("%d, %d", Millicores(1769), Millicores(3008))
	}
}
