package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/model"
)

// console is the provider's console in a browser.
type console struct {
	*browser
	axe string
}

// openConsole opens the console at a provider's address, with a password if there is one, and waits until
// it is live. From then on the page keeps its errors.
func openConsole(t *testing.T, address, password string) *console {
	t.Helper()
	axe, err := script("axe.sh")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(axe)
	if err != nil {
		t.Fatal(err)
	}
	c := &console{browse(t), string(text)}
	c.open(t, address, password)
	return c
}

func (c *console) open(t *testing.T, address, password string) {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if password != "" {
		at.User = url.UserPassword("admin", password)
	}
	c.do(t, chromedp.Navigate(at.String()), c.live())
	c.eval(t, `window.faults = [];
		addEventListener("error", (e) => faults.push(String(e.message)));
		addEventListener("unhandledrejection", (e) => faults.push(String(e.reason)));
		addEventListener("securitypolicyviolation", (e) => faults.push(e.violatedDirective + " " + e.blockedURI)); ""`)
}

func (c *console) live() chromedp.Action[chromedp.Void] {
	return until(`document.querySelector(".connection.live") !== null`)
}

// eval returns the text that an expression of JavaScript, or its promise, gives.
func (c *console) eval(t *testing.T, expression string) string {
	t.Helper()
	text, err := chromedp.Run(c.ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%.200s: %v", expression, err)
	}
	return text
}

// goes shows a view, and waits for an element of it.
func (c *console) goes(t *testing.T, view, selector string) {
	t.Helper()
	c.eval(t, fmt.Sprintf("location.hash = %s", strconv.Quote(view)))
	c.do(t, chromedp.WaitVisible(chromedp.CSS(selector)))
}

// says waits until the page has all words.
func (c *console) says(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		c.do(t, until(fmt.Sprintf("document.body.innerText.includes(%s)", strconv.Quote(w))))
	}
}

// press presses the button with a text, in an open dialog if there is one.
func (c *console) press(t *testing.T, text string) {
	t.Helper()
	c.do(t, until(fmt.Sprintf(`(() => {
		const within = document.querySelector("dialog[open]") ?? document.querySelector("main");
		const b = [...within.querySelectorAll("button, a.button")].find((x) => x.textContent.trim() === %s && !x.disabled);
		if (!b) return false;
		b.click();
		return true })()`, strconv.Quote(text))))
}

// clean fails the test if axe-core finds anything on the page, if the page is wider than its window, had
// an error, broke its policy, or loaded something from another host.
func (c *console) clean(t *testing.T, view string) {
	t.Helper()
	for _, size := range []int64{1280, 375} {
		c.do(t, chromedp.EmulateViewport(size, 900))
		if wide := c.eval(t, "String(document.documentElement.scrollWidth)"); wide != strconv.FormatInt(size, 10) {
			t.Errorf("%s is %s pixels wide in a window of %d", view, wide, size)
		}
		for _, theme := range []string{"light", "dark"} {
			c.eval(t, fmt.Sprintf(`(() => {
				const s = document.querySelector(".theme select");
				s.value = %q;
				s.dispatchEvent(new Event("change", {bubbles: true}));
				return "" })()`, theme))
			c.do(t, until(fmt.Sprintf("document.documentElement.dataset.theme === %q", theme)))
			c.eval(t, c.axe+`; ""`)
			found := c.eval(t, `axe.run().then((r) => r.violations.map((v) =>
				v.id + ": " + v.nodes.map((n) => n.html.slice(0, 200)).join(" | ")).join("\n"))`)
			if found != "" {
				t.Errorf("%s at %d pixels, %s: %s", view, size, theme, found)
			}
		}
	}
	c.do(t, chromedp.EmulateViewport(1280, 900))
	if faults := c.eval(t, `faults.join("\n")`); faults != "" {
		t.Errorf("%s: %s", view, faults)
	}
	elsewhere := c.eval(t, `performance.getEntriesByType("resource").map((e) => e.name)
		.filter((n) => new URL(n).host !== location.host).join("\n")`)
	if elsewhere != "" {
		t.Errorf("%s loads %s", view, elsewhere)
	}
}

// guarded starts a provider whose console needs a password, at an address.
func (p *place) guarded(t *testing.T, listen, password string, arguments ...string) *daemon {
	t.Helper()
	secrets := filepath.Join(p.dir, "credentials")
	for name, text := range map[string]string{"basic-auth-user": "admin", "basic-auth-password": password} {
		if err := os.MkdirAll(secrets, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p.providerAt(t, suite.binary, listen, append(arguments, "--secret-mount-path", secrets)...)
}

// A user drops a model, sees what it costs, deploys it and tries it.
func TestConsoleDeploys(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	secret, model := filepath.Join(p.dir, "payload-secret"), filepath.Join(p.dir, "My Digits.onnx")
	err := errors.Join(zooModel(t, "identity").WriteFile(model), os.WriteFile(secret, []byte("secret"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	const password = `p"a ss/<word>`
	d := p.guarded(t, "127.0.0.1:0", password, "--payload-secret", secret)
	a := do(t, client(t), http.MethodGet, d.url+"/ui/", nil)
	if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("the console without credentials: %d %v", a.status, a.header)
	}
	c := openConsole(t, d.url+"/ui/", password)
	c.says(t, "No function yet", "faas-cli new")
	c.clean(t, "the console without functions")

	c.press(t, "Deploy a model")
	c.do(t, chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{model}))
	c.says(t, "Verdict", "Objective")
	c.do(t, holds("form input", "my-digits"))
	c.clean(t, "the view Deploy")
	c.press(t, "Deploy")
	c.do(t, until(`location.hash === "#/function/openfaas-fn/my-digits"`), chromedp.WaitVisible(chromedp.CSS(".tiles")))

	c.triesOut(t, "my-digits")
	c.press(t, "Send")
	c.says(t, "✓ 200", "predictions", "Revision", "curl -sS")
	c.clean(t, "the view Try it")
	c.goes(t, "#/function/openfaas-fn/my-digits", ".histogram .bars")
	c.says(t, "Instances", "ready", "Latest decisions", "Deployed")
	c.clean(t, "the view of a function")
	// A dialog is in the middle, and Enter in its field does what its button does.
	c.goes(t, "#/function/openfaas-fn/my-digits/deployment", "td button")
	c.press(t, "Change")
	c.do(t, until(`(() => { const r = document.querySelector("dialog").getBoundingClientRect();
		return Math.abs(r.top + r.bottom - innerHeight) < 4 })()`), fill("dialog input", "150ms"))
	c.eval(t, `document.querySelector("dialog input").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true})); ""`)
	c.do(t, until(`document.querySelector("dialog") === null`))
	c.says(t, "150ms")
	c.goes(t, "#/nodes", ".node")
	c.says(t, "my-digits")
	c.clean(t, "the view Nodes")

	c.goes(t, "#/function/openfaas-fn/my-digits/what-if", ".outcome")
	c.clean(t, "the view What if")
	c.goes(t, "#/function/openfaas-fn/my-digits", ".tiles")
	c.press(t, "Remove …")
	c.press(t, "Remove")
	c.says(t, "No function yet")
}

// A function gets more requests than it may have instances for. The user reads why, presses the one
// button, and the requests are answered in time.
func TestConsolePutsRight(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, suite.binary)
	// It takes the same time on every machine: an instance answers at most ten requests a second.
	p.pythonBundle(t, "slow", declared+`
import time
def handle(batch):
    time.sleep(0.1)
    return [r["x"] for r in batch]
`)
	f := scaled(function("slow", "slow:latest", "4s", "infer.max-batch", "1"), "1", "1")
	f.Limits = &types.FunctionResources{CPU: "250m"}
	d.deploy(t, f)
	d.awaitReady(t, "slow", 1)
	c := openConsole(t, d.url+"/ui/", "")
	c.says(t, "slow")

	// streak is how many requests in a row were answered.
	var streak atomic.Int64
	stop := d.sends(t, "slow", 25, &streak)
	defer stop()
	c.do(t, chromedp.WaitVisible(chromedp.CSS(".attention .box.warn")))
	c.says(t, "load ")
	c.do(t, until(`[...document.querySelectorAll(".attention button")].some((b) => b.textContent.startsWith("Allow "))`))
	c.clean(t, "the list with a function that misses its objective")
	c.goes(t, "#/function/openfaas-fn/slow", ".box.warn button")
	c.press(t, c.eval(t, `document.querySelector(".box.warn button").textContent`))
	// The dialog says the same until it is answered, even if the function no longer has the button.
	said := c.eval(t, `document.querySelector("dialog").innerText`)
	c.eval(t, `import("./live.js").then(({ live, changed }) => {
		const f = live.functions.get("openfaas-fn/slow");
		live.functions.set("openfaas-fn/slow", {...f, state: "ok", sentence: "", remedy: null, slo_ms: 1});
		changed();
		return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("")))) })`)
	if now := c.eval(t, `document.querySelector("dialog")?.innerText ?? ""`); now != said {
		t.Errorf("the dialog said %q, and says %q", said, now)
	}
	c.press(t, c.eval(t, `document.querySelector("dialog .primary").textContent`))
	c.do(t, until(`document.querySelector("dialog") === null`))
	d.await(t, patience, "more instances", func() bool { return d.status(t, "slow").AvailableReplicas > 1 })
	d.await(t, patience, "the requests to be answered", func() bool { return streak.Load() > 30 })
	c.goes(t, "#/function/openfaas-fn/slow/decisions", ".decisions")
	c.says(t, "Started")
	c.clean(t, "the view Decisions")
}

// triesOut shows the form of a model. If no instance is ready, the page asks none before the user says so.
func (c *console) triesOut(t *testing.T, name string) {
	t.Helper()
	c.goes(t, "#/function/openfaas-fn/"+name+"/try", "main .card")
	c.do(t, until(`(() => {
		const start = [...document.querySelectorAll("main button")].find((b) => b.textContent.startsWith("Ask the model"));
		if (start) {
			window.early = performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/v2/models/`+name+`")).length;
			start.click();
		}
		return document.querySelector("main form") !== null })()`))
	if early := c.eval(t, "String(window.early ?? 0)"); early != "0" {
		t.Errorf("the page asked %s for its inputs %s times before the user said so", name, early)
	}
}

// triesScalar sends an input without rows as the model takes it.
func (c *console) triesScalar(t *testing.T, p *place, d *daemon) {
	t.Helper()
	all := graphs.Cases()
	scalar, err := model.FromProto(all[slices.IndexFunc(all, func(c *graphs.Case) bool { return c.Name == "scalar-input" })].Model)
	if err != nil {
		t.Fatal(err)
	}
	p.bundle(t, "scalar:latest", scalar)
	d.deploy(t, function("scalar", "scalar:latest", "20s"))
	c.triesOut(t, "scalar")
	c.press(t, "Send")
	c.says(t, "✓ 200", `"inputs"`)
	d.remove(t, "scalar")
}

// sends sends so many requests a second to a Python function until the returned function is called, and counts
// those in a row that were answered.
func (d *daemon) sends(t *testing.T, name string, perSecond int, streak *atomic.Int64) (stop func()) {
	t.Helper()
	c, ended := client(t), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		ticks := time.Tick(time.Second / time.Duration(perSecond))
		for {
			select {
			case <-ended:
				return
			case <-ticks:
			}
			all.Go(func() {
				a, err := try(c, http.MethodPost, d.function(name), []byte(`{"instances":[[3]]}`))
				if err != nil || a.status != http.StatusOK {
					streak.Store(0)
					return
				}
				streak.Add(1)
			})
		}
	})
	return func() {
		close(ended)
		all.Wait()
	}
}

// What functions are called, say and print is text. The page outlives a restart of the provider and says
// so, works behind a proxy below a path, and pages of other origins change nothing.
func TestConsoleHolds(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, suite.binary)
	const evil = `<img src=x onerror=window.broken=1>`
	f := ordinary("printer", "echo "+evil) // Its instance writes to the log what it runs.
	f.Annotations = &map[string]string{"note": evil}
	d.deploy(t, f)
	d.awaitReady(t, "printer", 1)
	if a := do(t, d.own, http.MethodPost, d.function("printer"), []byte(evil)); a.status != http.StatusOK {
		t.Fatalf("printer: %d %s", a.status, a.body)
	}

	// The proxy serves the provider below a path, and another site has a page.
	target, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: rewrite}
	below := httptest.NewServer(http.StripPrefix("/some/path", proxy))
	t.Cleanup(below.Close)
	t.Cleanup(below.CloseClientConnections)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	}))
	t.Cleanup(other.Close)

	c := openConsole(t, below.URL+"/some/path/ui", "")
	c.says(t, "printer")
	if at := c.eval(t, "location.pathname"); at != "/some/path/ui/" {
		t.Errorf("the proxy's console is at %s", at)
	}
	for view, word := range map[string]string{"logs": evil, "deployment": evil, "decisions": "Deployed"} {
		c.goes(t, "#/function/openfaas-fn/printer/"+view, ".card")
		c.says(t, word)
		c.clean(t, "the view "+view)
	}
	c.goes(t, "#/function/openfaas-fn/printer/try", "form textarea")
	c.do(t, fill("form textarea", evil))
	c.press(t, "Send")
	c.says(t, "✓ 200")
	c.do(t, until(`document.querySelector(".body").innerText.includes("onerror")`))
	c.triesScalar(t, p, d)
	c.goes(t, "#/queue", ".tiles")
	c.says(t, "No dead letter")
	c.clean(t, "the view Queue")
	if c.eval(t, "String(window.broken)") != "undefined" {
		t.Error("the page took text for HTML")
	}

	c.open(t, d.url+"/ui/", "")
	listen := strings.TrimPrefix(d.url, "http://")
	// A tab that nobody sees takes no connection.
	shown := func(as string) {
		c.eval(t, fmt.Sprintf(`Object.defineProperty(document, "visibilityState", {configurable: true, get: () => %q}); document.dispatchEvent(new Event("visibilitychange")); ""`, as))
	}
	shown("hidden")
	c.do(t, until(`document.querySelector(".connection.connecting") !== null`))
	// Decisions that are made between the page's question and its stream are not lost.
	c.eval(t, `const real = fetch; window.fetch = async (to, options) => {
		if (!String(to).includes("system/events")) return real(to, options);
		window.fetch = real;
		return new Response('{"events":[],"next":0}') }; ""`)
	shown("visible")
	c.do(t, c.live())
	c.goes(t, "#/function/openfaas-fn/printer", ".tiles")
	c.says(t, "Latest decisions", "Deployed")
	d.stop(t)
	c.says(t, "The provider does not answer", "The figures are those of")
	// A view that could not be loaded meanwhile appears with the answers.
	c.goes(t, "#/deploy", "main .box.bad")
	d = p.providerAt(t, suite.binary, listen)
	c.do(t, c.live(), chromedp.WaitVisible(chromedp.CSS(".drop")))
	c.says(t, "The provider has restarted")
	// The restart keeps the hour and its decisions.
	c.goes(t, "#/function/openfaas-fn/printer", ".tiles")
	c.says(t, "printer", "hour 100 %", "Deployed")
	c.mergesDecisions(t)

	c.do(t, chromedp.Navigate(other.URL))
	c.eval(t, fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", body: '{"replicas":0}'})
		.then(() => "", () => "")`, d.url+"/system/scale-function/printer"))
	if s := d.status(t, "printer"); s.Replicas != 1 {
		t.Errorf("a page of another site scaled the function: %+v", s)
	}
}

// mergesDecisions checks that a decision which two replicas tell, under IDs of their own, shows once, with its latest count,
// and that equal IDs of two replicas are two decisions.
func (c *console) mergesDecisions(t *testing.T) {
	t.Helper()
	got := c.eval(t, `import("./live.js").then(({ mergeEvents }) => {
		const one = (id, at, text, more) => ({ id, at, text, kind: "correct", function: "f", namespace: "n", ...more });
		let list = mergeEvents([], [one(1, 10, "Corrected."), one(2, 20, "Started.")]);
		list = mergeEvents(list, [one(7, 12, "Corrected. (×2)", { first_at: 10, count: 2, replaces: 1 }), one(2, 30, "Stopped.")]);
		list = mergeEvents(list, [one(3, 10, "Corrected."), one(9, 20, "Started.")]);
		list = mergeEvents(list, [one(11, 40, "Started 1."), one(12, 40, "Started 2.", { replaces: 11 })]);
		return list.map((e) => e.text).join(" ");
	})`)
	if want := "Corrected. (×2) Started. Stopped. Started 2."; got != want {
		t.Errorf("decisions of two replicas are %q, want %q", got, want)
	}
}

// The list shows another namespace when it is chosen, and the first one again.
func TestConsoleNamespaces(t *testing.T) {
	providerTests.takeHere(t)
	d := newPlace(t).provider(t, suite.binary)
	d.deploy(t, ordinary("printer", "cat"))
	if a := do(t, d.own, http.MethodPost, d.url+"/system/namespace/team-a", []byte(`{"name":"team-a"}`)); a.status >= 300 {
		t.Fatalf("make a namespace: %d %s", a.status, a.body)
	}
	c := openConsole(t, d.url+"/ui/", "")
	c.says(t, "printer")
	for _, step := range [][2]string{{"team-a", "No function yet"}, {"openfaas-fn", "printer"}} {
		c.do(t, chromedp.WaitVisible(chromedp.CSS("label.namespace select")))
		c.eval(t, fmt.Sprintf(`{ const s = document.querySelector("label.namespace select"); s.value = %q;
			s.dispatchEvent(new Event("change", {bubbles: true})); } ""`, step[0]))
		c.do(t, c.live())
		c.says(t, step[1])
	}
	c.clean(t, "the list after another namespace")
}
