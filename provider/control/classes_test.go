package control

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/variant"
)

// asks sends a request with headers, given as name and value in turn; a name without X-Infer-
// is a path.
func (r *rig) asks(name string, headers ...string) (*frame.Response, error) {
	d, _ := r.on.Dispatchers.Load(name)
	req := &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte("x")}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "path" {
			req.Path = headers[i+1]
			continue
		}
		req.Header.Add("X-Infer-"+headers[i], headers[i+1])
	}
	return d.(provider.Dispatcher).Invoke(r.t.Context(), req)
}

// The numbers in headers are decimal ones, as in annotations, and a refusal names the header and an
// example.
func TestNumbersInHeaders(t *testing.T) {
	numbers := []string{"0x1p5", "0X1P+5", "1_0", "0x_1p1", "Inf", "infinity", "NaN", " 70", "70 ", "+70", "7e1", "7,5", ""}
	for header, x := range map[string]struct {
		example string
		values  []string
	}{
		"X-Infer-Accuracy": {"such as 75.5", numbers}, "X-Infer-Cost": {"such as 40", numbers},
		"X-Infer-Latency": {"such as 50ms", []string{"0x1p5ms", "0x10ms", "1_0ms", "Infms", "NaN", " 70ms", "70ms ", "7e1ms", "70", ""}},
	} {
		for _, value := range x.values {
			_, err := asked(http.Header{header: {value}})
			if web.StatusOf(err) != 400 || !strings.Contains(err.Error(), "the header "+header) || !strings.Contains(err.Error(), x.example) {
				t.Errorf("%s: %q: %v", header, value, err)
			}
		}
	}
	if r, err := asked(http.Header{"X-Infer-Accuracy": {"75.5"}, "X-Infer-Cost": {".5"}}); err != nil || r.Accuracy != 75.5 || r.Cost != 0.5 {
		t.Errorf("%+v, %v", r, err)
	}
}

func noFewerClasses() bool { return variant.MaxClasses < batching.MaxClasses }

// Each request is answered by a variant that is as accurate as it asks, and the answer says by
// which. Requests that ask nothing are answered by the cheapest above the function's accuracy.
func TestRequestsAskForAccuracy(t *testing.T) {
	if !noFewerClasses() {
		t.Fatal("no class is left for instances that serve none")
	}
	try(t, func(r *rig) {
		r.backend.widen(8000)
		r.measured("fn", "variants:precise=80,slim=70,coarse-slim=60", accurate(65))
		for _, x := range []struct{ header, value, want string }{
			{"Accuracy", "75", "precise"}, {"Model", "coarse-slim", "coarse-slim"}, {"path", "/v2/models/precise/infer", "precise"},
			{"path", "/v1/models/coarse-slim:predict", "coarse-slim"}, {"Model", "slim", "slim"},
		} {
			got, err := r.asks("fn", x.header, x.value)
			if err != nil || string(got.Body) != x.want+":x" || got.Header.Get("X-Infer-Variant") != x.want {
				t.Fatalf("%s %s: %v, %v; want an answer of %s", x.header, x.value, got, err, x.want)
			}
		}
		if got, err := r.asks("fn", "Accuracy", "75"); err != nil || got.Header.Get("X-Infer-Accuracy") != "80" {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := r.asks("fn"); err != nil || got.Header.Get("X-Infer-Variant") == "coarse-slim" {
			t.Errorf("without any: %v, %v", got, err)
		}
		r.until("all are gone", func() bool { return r.describe("fn").Ready == 0 })
		if got, err := r.asks("fn"); err != nil || got.Header.Get("X-Infer-Variant") == "coarse-slim" {
			t.Errorf("anew: %v, %v", got, err)
		}
	})
}

// Requests that begin to ask for more than the serving variant has are late only while another one
// starts: the capacity for them follows as soon as a few of them have come.
func TestRequestsBeginToAskForAccuracy(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(16000)
		r.measured("fn", twoVariants, serving("slim"))
		r.answered("fn", "slim")
		r.deploy("fn", twoVariants)
		var sent sync.WaitGroup
		var mu sync.Mutex
		failed, late := 0, 0
		const gap = time.Millisecond
		for i := range 4000 {
			var headers []string
			if i >= 2000 {
				headers = []string{"Accuracy", "75"}
			}
			sent.Go(func() {
				began := time.Now()
				_, err := r.asks("fn", headers...)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case i < 1900: // The first ones start the function.
				case err != nil:
					failed++
				case time.Since(began) > 200*time.Millisecond:
					late++
				}
			})
			time.Sleep(gap)
		}
		sent.Wait()
		if failed > 0 || late > 60 {
			t.Errorf("of 2000 requests after the change %d failed, and %d were late", failed, late)
		}
	})
}

// No answer comes from a variant below what its request asked, while load, deployments and
// requirements change.
func TestNoAnswerBelowWhatWasAsked(t *testing.T) {
	accuracies := map[string]float64{"precise": 80, "slim": 70, "coarse-slim": 60}
	for seed := range uint64(3) {
		try(t, func(r *rig) {
			random := rand.New(rand.NewPCG(seed, 1))
			r.backend.widen(16000)
			r.measured("fn", "variants:precise=80,slim=70,coarse-slim=60", accurate(65))
			var sent sync.WaitGroup
			var mu sync.Mutex
			served, refused := map[string]int{}, 0
			for i := range 3000 {
				if i%500 == 499 {
					r.deploy("fn", "variants:precise=80,slim=70,coarse-slim=60", accurate([]float64{0, 65, 75}[random.IntN(3)]))
				}
				least, headers := 0.0, []string{}
				if random.IntN(2) == 0 {
					least = 100 * random.Float64()
					headers = append(headers, "Accuracy", strconv.FormatFloat(least, 'f', -1, 64))
				}
				if random.IntN(3) == 0 {
					headers = append(headers, "Latency", strconv.Itoa(1+random.IntN(300))+"ms")
				}
				sent.Go(func() {
					got, err := r.asks("fn", headers...)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						refused++
						return
					}
					name, _, _ := strings.Cut(string(got.Body), ":")
					if accuracies[name] < least {
						t.Errorf("%s answered a request for %g", name, least)
					}
					served[name]++
				})
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			}
			sent.Wait()
			if served["precise"] < 300 || served["slim"] < 300 || refused > 2000 {
				t.Errorf("served %v, refused %d", served, refused)
			}
		})
	}
}

// The capacity follows the shortest latency that requests ask, and goes back a minute after
// the last of them. Those that ask for less than any config gives are refused at once.
func TestRequestsAskForLatency(t *testing.T) {
	try(t, func(r *rig) {
		slo := func() (planned time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.functions[full("fn")].objective().Inference.SLO
		}
		r.backend.widen(8000)
		r.measured("fn", "plain")
		r.answered("fn", "plain")
		for range 3 {
			if _, err := r.asks("fn", "Latency", "50ms"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if slo() != 50*time.Millisecond {
			t.Errorf("planned for %v, want 50ms", slo())
		}
		if _, err := r.asks("fn", "Latency", "10s"); err != nil {
			t.Error(err)
		}
		if _, err := r.asks("fn", "Latency", "2ms"); err == nil || !strings.Contains(err.Error(), "answers within") {
			t.Errorf("2ms: %v", err)
		}
		if n := r.load("fn", 20*time.Millisecond, 90*time.Second); n > 0 || slo() != 200*time.Millisecond {
			t.Errorf("%d failed; planned for %v afterwards", n, slo())
		}
	})
}

// One request in 500 that asks for less changes nothing, as 1 % may miss its objective; more of them
// have capacity planned for what the function allows; none counts as a sign of too little capacity.
func TestFewRequestsAskForLatency(t *testing.T) {
	for _, c := range []struct {
		allowed        time.Duration
		every          int
		least, highest time.Duration
	}{
		{5 * time.Second, 10, 5 * time.Second, 5 * time.Second},
		{time.Second, 500, 5 * time.Second, 5 * time.Second},
		{time.Second, 10, time.Second, time.Second},
		{100 * time.Millisecond, 10, 400 * time.Millisecond, 600 * time.Millisecond},
	} {
		try(t, func(r *rig) {
			r.backend.widen(64000)
			r.measured("f", "m", func(f *provider.Function) { f.Inference.SLO, f.Inference.Shortest = 5*time.Second, c.allowed })
			shortest := 5 * time.Second
			for i := range 2000 {
				var headers []string
				if i%c.every == c.every/2 && i > 100 {
					headers = []string{"Latency", "600ms"}
				}
				if _, err := r.asks("f", headers...); err != nil && len(headers) == 0 {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				r.mu.Lock()
				shortest = min(shortest, r.functions[full("f")].objective().Inference.SLO)
				r.mu.Unlock()
			}
			if shortest < c.least || shortest > c.highest {
				t.Errorf("with %v allowed and one request in %d, capacity was planned for %v, want %v to %v", c.allowed, c.every, shortest, c.least, c.highest)
			}
		})
	}
}

func TestWrongRequirements(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", twoVariants)
		r.measured("one", "plain")
		for _, x := range []struct {
			function string
			headers  []string
			status   int
			want     string
		}{
			{"fn", []string{"Accuracy", "101"}, 400, "X-Infer-Accuracy is \"101\": it must be a percentage"},
			{"fn", []string{"Accuracy", "NaN"}, 400, "X-Infer-Accuracy"},
			{"fn", []string{"Accuracy", "-1"}, 400, "X-Infer-Accuracy"},
			{"fn", []string{"Accuracy", "70", "Accuracy", "80"}, 400, "once"},
			{"fn", []string{"Latency", "50"}, 400, "X-Infer-Latency is \"50\": it must be a duration"},
			{"fn", []string{"Latency", "-1s"}, 400, "X-Infer-Latency"},
			{"fn", []string{"Cost", "Inf"}, 400, "X-Infer-Cost"},
			{"fn", []string{"Cost", "0"}, 400, "X-Infer-Cost"},
			{"fn", []string{"Model", ""}, 400, "X-Infer-Model"},
			{"fn", []string{"Model", "vgg"}, 404, "there is no model \"vgg\", only precise, slim"},
			{"fn", []string{"Model", "slim", "path", "/v2/models/precise/infer"}, 400, "ask for one"},
			{"fn", []string{"path", "/v1/models/vgg:predict"}, 404, "there is no model \"vgg\", only precise, slim; in a path, fn stands for all of them"},
			{"fn", []string{"path", "/v2/models/vgg/infer"}, 404, "there is no model \"vgg\", only precise, slim"},
			{"fn", []string{"path", "/v2/models/" + strings.Repeat("v", 1000)}, 404, "v…\", only precise, slim"},
			{"fn", []string{"Accuracy", "90"}, 400, "the nearest, precise, has an accuracy of 80 of the 90 % asked"},
			{"fn", []string{"Cost", "0.001"}, 400, "costs"},
			{"one", []string{"Accuracy", "1"}, 400, "the model has no known accuracy, and 1 % is asked"},
			{"one", []string{"Model", "plain"}, 404, "there is no model \"plain\""},
		} {
			_, err := r.asks(x.function, x.headers...)
			if web.StatusOf(err) != x.status || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v: %d %v; want %d %s", x.headers, web.StatusOf(err), err, x.status, x.want)
			}
		}
		if got, err := r.asks("one", "path", "/v2/models/other/infer"); err != nil { // Of one model, the instance decides.
			t.Errorf("%v %v", got, err)
		}
	})
}

// The function's accuracy holds for every answer, also while a deployment replaces instances that
// run only because requests have named a variant below it.
func TestTheFunctionsAccuracyHoldsAfterADeployment(t *testing.T) {
	const image = "variants:precise=97,small=92.2"
	edits := map[string]func(*provider.Function){
		"the same":             func(*provider.Function) {},
		"other environment":    func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"a": "b"} },
		"only another variant": func(f *provider.Function) { f.Deployment.Image = "variants:precise=97" },
	}
	for what, edit := range edits {
		try(t, func(r *rig) {
			r.backend.widen(16000)
			r.measured("fn", image, accurate(95))
			for range 1000 { // In the end only the variant that is asked for runs.
				if got, err := r.asks("fn", "Model", "small"); err != nil || got.Variant != "small" {
					t.Fatalf("%s: %+v, %v", what, got, err)
				}
				time.Sleep(time.Second)
			}
			r.deploy("fn", image, accurate(95), edit)
			var sent sync.WaitGroup
			var answers, below atomic.Int64
			for range 1000 {
				sent.Go(func() {
					if got, err := r.asks("fn"); err == nil {
						answers.Add(1)
						if !strings.HasPrefix(string(got.Body), "precise:") {
							below.Add(1)
						}
					}
				})
				time.Sleep(5 * time.Millisecond)
			}
			sent.Wait()
			if answers.Load() < 950 || below.Load() > 0 {
				t.Errorf("%s: %d answers, %d of them below what the function asks", what, answers.Load(), below.Load())
			}
		})
	}
}

// Whatever instances the dispatcher is told of, an answer below the function's accuracy is not given.
func TestAnswerBelowTheFunctionsAccuracyIsRefused(t *testing.T) {
	offers := []variant.Variant{{Name: "precise", Accuracy: 97, RPS: 1}, {Name: "small", Accuracy: 92.2, RPS: 1}}
	c := &classifier{service: "fn"}
	classes := variant.NewClasses(variant.Query{Accuracy: 95, Latency: time.Second}).Offering(variant.Query{Accuracy: 95, Latency: time.Second}, offers)
	c.current.Store(classes)
	c.earlier.Store(&map[string]float64{"old": 97, "older": 60})
	for _, answer := range []struct {
		variant, instance, model string
		given                    bool
	}{
		{"precise", "i", "", true}, {"small", "i", "", false}, {"small", "i", "small", true},
		{"gone", "old", "", true}, {"gone", "older", "", false}, {"gone", "i", "", false}, {"precise", "older", "", false},
		{cluster.Whole, "i", "", false}, {cluster.Whole, "old", "", true},
	} {
		asks := classes.Binding(variant.Requirement{Query: variant.Query{Model: answer.model, Latency: time.Second}})
		err := c.name(&frame.Response{Variant: answer.variant, Instance: answer.instance}, asks)
		if known, ok := err.(web.HTTPError); (err == nil) != answer.given || err != nil && (!ok || known.HTTPStatus() != 503) {
			t.Errorf("%+v: %v", answer, err)
		}
	}
}

// While a deployment with a better model of the same name replaces the instances, the earlier ones
// do not answer requests that ask for more than they have, and say what they have.
func TestEarlierInstancesAreAsAccurateAsTheyWere(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", "variants:only=70")
		r.answered("fn", "only")
		before := map[string]bool{}
		for _, in := range r.backend.living() {
			before[string(in.ID)] = true
		}
		r.deploy("fn", "variants:only=90", func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"other": "model"} })
		told := map[string]int{}
		for range 1000 {
			if got, err := r.asks("fn", "Accuracy", "80"); err == nil && before[got.Instance] {
				t.Fatal("an earlier instance answered")
			}
			if got, err := r.asks("fn"); err == nil {
				accuracy := got.Header.Get("X-Infer-Accuracy")
				if before[got.Instance] != (accuracy == "70") {
					t.Fatalf("%s, earlier: %v, says %s", got.Instance, before[got.Instance], accuracy)
				}
				told[accuracy]++
			}
			time.Sleep(5 * time.Millisecond)
		}
		if told["70"] == 0 || told["90"] == 0 {
			t.Errorf("%v", told)
		}
	})
}

// A request that no variant meets is told so, even if the function has all classes that it may
// have: it would be sent again otherwise, for nothing.
func TestWrongRequirementsOfManyClasses(t *testing.T) {
	own := variant.Query{Latency: 200 * time.Millisecond}
	classes := variant.NewClasses(own).Offering(own, []variant.Variant{
		{Model: "precise", Name: "precise", Accuracy: 80, Latency: 50, RPS: 1}, {Model: "slim", Name: "slim", Accuracy: 70, Latency: 10, RPS: 1},
	})
	for latency := own.Latency; classes.Len() < variant.MaxClasses-1; latency /= 2 {
		classes, _, _ = classes.With(variant.Requirement{Query: variant.Query{Latency: latency}})
	}
	classes, _, _ = classes.With(variant.Requirement{Query: variant.Query{Model: "precise"}})
	classes, _, _ = classes.With(variant.Requirement{Query: variant.Query{Model: "slim"}})
	if classes.Len() != variant.MaxClasses {
		t.Fatalf("there are %d classes", classes.Len())
	}
	c := &classifier{service: "fn"}
	c.current.Store(classes)
	for _, x := range []variant.Requirement{{Query: variant.Query{Accuracy: 90}}, {Query: variant.Query{Accuracy: 75, Model: "slim"}}} {
		_, err := c.classify(&frame.Request{}, x, classes)
		if web.StatusOf(err) != 400 || !strings.Contains(err.Error(), "the nearest, ") {
			t.Errorf("%+v: %d %v; want 400 and the nearest", x, web.StatusOf(err), err)
		}
	}
}

// An instance knows its function's name only, so a path with a variant's name gets that one, and a
// header has the variant's.
func TestVariantInThePath(t *testing.T) {
	own := variant.Query{Latency: time.Second}
	offers := []variant.Variant{{Model: "resnet", Name: "resnet-int8", RPS: 1}, {Model: "fn", Name: "fn", RPS: 1}}
	classes := variant.NewClasses(own).Offering(own, offers)
	c := &classifier{service: "fn"}
	for path, want := range map[string][2]string{
		"/v2/models/resnet-int8/infer": {"resnet-int8", "/v2/models/fn/infer"}, "/v2/models/resnet": {"resnet", "/v2/models/fn"},
		"/v1/models/resnet%2Dint8:predict": {"resnet-int8", "/v1/models/fn:predict"}, "/v2/models/fn/infer": {"", "/v2/models/fn/infer"},
		"/v2/models/": {"", "/v2/models/"}, "/": {"", "/"}, "": {"", ""},
	} {
		req := &frame.Request{Path: path}
		r, err := c.ask(req, classes)
		if err != nil || r.Model != want[0] || req.Path != want[1] || req.Header.Get(frame.ModelHeader) != want[0] {
			t.Errorf("%s: model %q, path %s, header %q, %v; want %v", path, r.Model, req.Path, req.Header.Get(frame.ModelHeader), err, want)
		}
	}
	only := &frame.Request{Path: "/v2/models/resnet/infer"}
	if r, err := c.ask(only, variant.NewClasses(own).Offering(own, offers[:1])); err != nil || r.Model != "resnet" || only.Path != "/v2/models/fn/infer" {
		t.Errorf("the only variant: model %q, path %s, %v", r.Model, only.Path, err)
	}
}

// A request to one of several functions that share instances asks for the model by its function's name, also when it
// comes again with the headers that the first try has changed.
func TestAskOfAFunctionThatShares(t *testing.T) {
	c := &classifier{service: "shared-1"}
	classes := variant.NewClasses(variant.Query{Latency: time.Second})
	headers := http.Header{}
	for range 2 {
		req := &frame.Request{Path: "/v2/models/a/infer", Header: headers, Owner: &frame.Owner{Name: "a"}}
		r, err := c.ask(req, classes)
		if err != nil || r.Model != "" || req.Path != "/v2/models/shared-1/infer" || req.Header.Get(modelHeader) != "a" {
			t.Errorf("asks %+v, %v, by %s with %v", r, err, req.Path, req.Header)
		}
	}
	req := &frame.Request{Path: "/v2/models/a/infer", Header: http.Header{modelHeader: {"digits"}}, Owner: &frame.Owner{Name: "a"}}
	if r, err := c.ask(req, classes); err != nil || r.Model != "digits" || req.Path != "/v2/models/shared-1/infer" {
		t.Errorf("with a model's name in the header it asks %+v, %v, by %s", r, err, req.Path)
	}
}
