package variant

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// three are variants from cheap and bad to dear and good.
var three = []Variant{
	{Model: "mobilenet", Name: "mobilenet", Latency: 10 * ms, RPS: 100, Accuracy: 60, Cost: 1},
	{Model: "resnet", Name: "resnet-int8", Latency: 30 * ms, RPS: 30, Accuracy: 70, Cost: 1},
	{Model: "resnet", Name: "resnet", Latency: 80 * ms, RPS: 10, Accuracy: 76, Cost: 1},
}

func asking(accuracy float64, latency time.Duration, model string, cost float64) Requirement {
	return Requirement{Query: Query{Model: model, Accuracy: accuracy, Latency: latency}, Cost: cost}
}

// Requirements that the same variants meet share a class.
func TestClasses(t *testing.T) {
	own := Query{Accuracy: 65, Latency: 200 * ms}
	c := NewClasses(own).Offering(own, three)
	for _, x := range []struct {
		asks Requirement
		want int
		of   string
	}{
		{Requirement{}, 0, "resnet-int8 resnet"},
		{asking(65.5, 0, "", 0), 0, "resnet-int8 resnet"},
		{asking(0, time.Second, "", 0), 0, "resnet-int8 resnet"}, // more time than the objective
		{asking(71, 0, "", 0), 1, "resnet"},
		{asking(76, 0, "resnet", 0), 1, "resnet"},
		{asking(0, 0, "mobilenet", 0), 2, "mobilenet"}, // below the function's accuracy, and named
		{asking(50, 0, "", 0), 3, "mobilenet resnet-int8 resnet"},
		{asking(0, 0, "resnet", 0), 0, "resnet-int8 resnet"},
		{asking(0, 150*ms, "", 0), 4, "resnet-int8 resnet"}, // step 1: 141 ms
		{asking(0, 142*ms, "", 0), 4, "resnet-int8 resnet"},
		{asking(0, 100*ms, "", 0), 5, "resnet-int8 resnet"}, // step 2: 100 ms
		{asking(0, 81*ms, "", 0), 6, "resnet-int8"},         // step 3: 71 ms
		{asking(75, 81*ms, "", 0), 7, "resnet"},             // no variant is as fast as the step's end
		{asking(0, 0, "", 0.05), 8, "resnet-int8"},
	} {
		next, number, ok := c.With(x.asks)
		if c = next; !ok || number != x.want || strings.Join(c.Admitted(number), " ") != x.of {
			t.Errorf("%+v: class %d %v of %v, want %d of %s", x.asks, number, ok, c.Admitted(number), x.want, x.of)
		}
	}
	if c.Serving("resnet") != 1|1<<1|1<<3|1<<4|1<<5|1<<7 || c.Serving("mobilenet") != 1<<2|1<<3 || c.Serving("other") != 0 {
		t.Errorf("resnet serves %b, mobilenet %b", c.Serving("resnet"), c.Serving("mobilenet"))
	}
	for number, want := range map[int]time.Duration{0: 200 * ms, 1: 200 * ms, 4: 141 * ms, 5: 100 * ms, 6: 70 * ms, 7: 81 * ms} {
		if got := c.Objective(number).Truncate(ms); got != want {
			t.Errorf("class %d is planned for %v, want %v", number, got, want)
		}
	}
}

// A request that names a model still asks for the function's accuracy, if the model has such a
// variant.
func TestNamedModelKeepsTheFloor(t *testing.T) {
	for floor, want := range map[float64]string{0: "resnet-int8 resnet", 75: "resnet", 80: "resnet-int8 resnet"} {
		own := Query{Accuracy: floor, Latency: 200 * ms}
		c, number, ok := NewClasses(own).Offering(own, three).With(asking(0, 0, "resnet", 0))
		if got := strings.Join(c.Admitted(number), " "); !ok || got != want {
			t.Errorf("above %g: %s, want %s", floor, got, want)
		}
	}
}

// A refusal names the nearest variant and what it lacks.
func TestUnmetRequirements(t *testing.T) {
	own := Query{Accuracy: 65, Latency: 200 * ms}
	c := NewClasses(own).Offering(own, three)
	for want, asks := range map[string]Requirement{
		"the nearest, resnet, has an accuracy of 76 of the 80 % asked":                                                     asking(80, 0, "", 0),
		"the nearest, resnet-int8, has an accuracy of 70 of the 71 % asked and answers within 30ms at best, 29ms is asked": asking(71, 29*ms, "", 0),
		"the nearest, resnet, has an accuracy of 76 of the 77 % asked":                                                     asking(77, 0, "resnet", 0),
		`there is no model "vgg", only mobilenet, resnet-int8, resnet`:                                                     asking(0, 0, "vgg", 0),
		"the nearest, mobilenet, costs 0.01 per request of the 0.009 asked":                                                asking(60, 0, "", 0.009),
		"the nearest, mobilenet, has an accuracy of 60 of the 65 % asked":                                                  asking(0, 10*ms, "", 0),
	} {
		if _, known, ok := c.Find(asks); known || ok || c.Unmet(asks) != want {
			t.Errorf("%+v: %v, %q\nwant %q", asks, ok, c.Unmet(asks), want)
		}
	}
}

// The only model of a function may have no name as a variant, and no known accuracy.
func TestUnmetByTheOnlyModel(t *testing.T) {
	own := Query{Latency: 200 * ms}
	c := NewClasses(own).Offering(own, []Variant{{Model: "photos", Latency: 10 * ms, RPS: 10, Cost: 1}})
	if got, want := c.Unmet(asking(0, 0, "vgg", 0)), `there is no model "vgg", only photos`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := c.Unmet(asking(70, 0, "", 0)), "the model has no known accuracy, and 70 % is asked"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Classes keep their numbers while variants come, go and change their times.
func TestOtherOffersForTheSameClasses(t *testing.T) {
	own := Query{Latency: 200 * ms}
	c := NewClasses(own).Offering(own, three)
	c, fast, _ := c.With(asking(65, 35*ms, "", 0))
	c, good, _ := c.With(asking(65, 0, "", 0))
	slower := append([]Variant{{Model: "resnet", Name: "resnet-int4", Latency: 5 * ms, RPS: 50, Accuracy: 68, Cost: 1}}, three...)
	slower[2].Latency = 60 * ms
	c = c.Offering(own, slower)
	if got := strings.Join(c.Admitted(good), " "); got != "resnet-int8 resnet" {
		t.Errorf("a worse variant joined a class of others: %s", got)
	}
	if got := strings.Join(c.Admitted(fast), " "); got != "resnet-int8" {
		t.Errorf("the fastest that is accurate enough is %s", got)
	}
	if got := c.Objective(fast); got != 60*ms {
		t.Errorf("planned for %v", got)
	}
	c = c.Offering(own, three[:1])
	if got := c.Admitted(good); got != nil {
		t.Errorf("%v answers those that ask for more", got)
	}
}

// With ten thousand different requirements every request that some variant meets has a class,
// and no class has a variant that does not meet its requests.
func TestTenThousandRequirements(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		checkClasses(t, random, 10_000)
	}
}

func FuzzClasses(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { checkClasses(t, rand.New(rand.NewPCG(a, b)), 100) })
}

func checkClasses(t *testing.T, random *rand.Rand, requirements int) {
	var offers []Variant
	for i := range 1 + random.IntN(MaxClasses-1) {
		offers = append(offers, Variant{Model: string(rune('a' + i/3)), Name: string(rune('A' + i)), Latency: time.Duration(1+random.IntN(190)) * ms,
			RPS: 1 + 100*random.Float64(), Accuracy: float64(random.IntN(101)), Cost: 1})
	}
	own := Query{Accuracy: float64(random.IntN(80)), Latency: 200 * ms}
	c := NewClasses(own).Offering(own, offers)
	for range requirements {
		r := asking(0, 0, "", 0)
		if random.IntN(2) == 0 {
			r.Accuracy = 100 * random.Float64()
		}
		if random.IntN(2) == 0 {
			r.Latency = time.Duration(random.IntN(250)) * ms
		}
		if random.IntN(4) == 0 {
			r.Cost = random.Float64() / 10
		}
		if random.IntN(4) == 0 {
			r.Model = offers[random.IntN(len(offers))].Model
		}
		_, _, met := c.Find(r)
		next, number, ok := c.With(r)
		if c = next; ok != met {
			t.Fatalf("%+v: a variant meets it: %v; it has a class: %v of %d", r, met, ok, c.Len())
		}
		if !ok {
			if c.Unmet(r) == "" {
				t.Fatalf("%+v: no reason", r)
			}
			continue
		}
		asked := r
		if asked.Accuracy == 0 && asked.Model == "" {
			asked.Accuracy = own.Accuracy
		}
		if asked.Latency >= own.Latency {
			asked.Latency = 0
		}
		for _, name := range c.Admitted(number) {
			if v := c.Offer(name); !asked.Met(v) || c.Serving(name)>>number&1 == 0 {
				t.Fatalf("%+v: class %d has %+v", r, number, v)
			}
		}
		if len(c.Admitted(number)) == 0 || c.Len() > MaxClasses {
			t.Fatalf("%+v: class %d of %d has no variant", r, number, c.Len())
		}
	}
}

func BenchmarkFindClass(b *testing.B) {
	own := Query{Accuracy: 65, Latency: 200 * ms}
	c := NewClasses(own).Offering(own, three)
	asks := asking(71, 150*ms, "", 0)
	c, _, _ = c.With(asks)
	b.ReportAllocs()
	for b.Loop() {
		if _, known, _ := c.Find(asks); !known {
			b.Fatal("not known")
		}
	}
}
