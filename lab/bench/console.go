package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Console configures RunConsole.
type Console struct {
	// Browser is the path of a Chromium.
	Browser string
	// Functions is how many the provider has, History how many another one has that is measured for the memory of its
	// history, and Viewers how many streams are open while a function gets Rate requests/s.
	Functions, History, Viewers int
	Rate                        float64
	// Rest is how long the idle provider is measured. Each is how long the load lasts, per round with and without
	// viewers.
	Rest, Each time.Duration
}

// settling is how long a provider gets after a change before it is measured, and pages is how many times the page is opened.
const (
	settling = 5 * time.Second
	pages    = 5
)

// RunConsole measures what the console costs: the provider's CPU while one person looks at it, how soon the page shows
// something, what it loads, the memory of the history, and what many viewers do to a function's requests.
func RunConsole(ctx context.Context, o rig.Options, c Console) (*report.Report, error) {
	s, err := rig.NewSubject("identity")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, err := o.Provider(ctx, s.Dir)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	if err := c.deploy(ctx, o, d, s); err != nil {
		return nil, err
	}
	r := report.New("bench console", time.Now())
	if err := c.page(ctx, o.Log, d, r); err != nil {
		return r, err
	}
	target, err := s.Target(d.URL + "/function/" + rig.FunctionName + "/")
	if err != nil {
		return r, err
	}
	target.Rate, target.Arrivals = c.Rate, load.Poisson
	fmt.Fprintf(o.Log, "%g requests/s, with and without %d viewers\n", c.Rate, c.Viewers)
	if _, err := load.RunClosed(ctx, target, 1, settling); err != nil { // Its first instances start.
		return r, err
	}
	if err := measureViewers(ctx, r, d.URL, target, c.Viewers, c.Each); err != nil {
		return r, err
	}
	fmt.Fprintf(o.Log, "an hour of the history of %d functions\n", c.History)
	return r, measureHistory(ctx, r, c.History, 3700)
}

// deploy deploys inference functions at zero instances, and ordinary ones with an instance: a tenth.
func (c Console) deploy(ctx context.Context, o rig.Options, d *rig.Deployed, s *rig.Subject) error {
	if err := d.Bundle(s, "subject:latest"); err != nil {
		return err
	}
	fmt.Fprintf(o.Log, "deploying %d functions\n", c.Functions)
	for i := range c.Functions {
		var err error
		switch {
		case i == 0:
			err = d.Deploy(ctx, rig.FunctionName, "subject:latest", 100*time.Millisecond)
		case i%10 == 9:
			err = d.DeployProgram(ctx, fmt.Sprintf("program-%d", i), "cat")
		default:
			err = d.Deploy(ctx, fmt.Sprintf("model-%d", i), "subject:latest", 100*time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	for i := 9; i < c.Functions; i += 10 {
		if err := d.Available(ctx, fmt.Sprintf("program-%d", i), 1); err != nil {
			return err
		}
	}
	return d.AwaitProfile(ctx, o.Log, 2*time.Minute)
}

// page measures the idle provider, alone and with one viewer, and the page.
func (c Console) page(ctx context.Context, log io.Writer, d *rig.Deployed, r *report.Report) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(c.Browser), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1400, 1600))
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	browser, end := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	defer end()
	if err := chromedp.Do(browser); err != nil {
		return fmt.Errorf("start %s: %w", c.Browser, err)
	}
	fmt.Fprintf(log, "the idle provider, %v without and with a viewer\n", c.Rest)
	alone, err := cpuPercent(ctx, d, c.Rest)
	if err != nil {
		return err
	}
	at := d.URL + "/ui/"
	if err := within(browser, chromedp.Navigate(at), chromedp.Poll[chromedp.Void](`document.querySelector(".connection.live") !== null`)); err != nil {
		return fmt.Errorf("open %s: %w", at, err)
	}
	watched, err := cpuPercent(ctx, d, c.Rest)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("of the provider with %d functions, over %v", c.Functions, c.Rest)
	r.Add("idle.cpu_pct", watched, "% of a core", note+", while the console is open in one tab")
	r.Add("idle.alone_pct", alone, "% of a core", note+", without a viewer")
	if err := within(browser, chromedp.Navigate("about:blank")); err != nil {
		return err
	}
	var paints, lists []float64
	for range pages {
		paint, list, err := opened(browser, at)
		if err != nil {
			return fmt.Errorf("open %s: %w", at, err)
		}
		paints, lists = append(paints, paint), append(lists, list)
	}
	r.Add("first_paint_ms", rig.Median(paints), "ms", fmt.Sprintf("first contentful paint over loopback, median of %d new profiles", pages))
	r.Add("list_ms", rig.Median(lists), "ms", fmt.Sprintf("until the page lists %d functions, the same times", c.Functions))
	bytes, files, err := bundleOf(browser, at)
	if err != nil {
		return err
	}
	r.Add("bundle_kib", bytes/1024, "KiB", fmt.Sprintf("%g files that all views of the page load, as they are sent", files))
	return nil
}

// within carries out actions in a tab, for at most a minute.
func within(tab context.Context, actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// newTab opens a page in a new profile, which ends after a minute.
func newTab(browser context.Context, at string) (context.Context, func(), error) {
	tab, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	both := func() { cancel(); end() }
	// The first action's context is that of the tab, so it has no limit.
	if err := errors.Join(chromedp.Do(tab), chromedp.Do(ctx, chromedp.Navigate(at))); err != nil {
		both()
		return nil, nil, err
	}
	return ctx, both, nil
}

// cpuPercent is the CPU that a provider uses, in % of a core, once it has settled.
func cpuPercent(ctx context.Context, d *rig.Deployed, over time.Duration) (float64, error) {
	if err := rig.Pause(ctx, settling); err != nil {
		return 0, err
	}
	before, err := rig.ProcessorTime(d.Process.Pid)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := rig.Pause(ctx, over); err != nil {
		return 0, err
	}
	after, err := rig.ProcessorTime(d.Process.Pid)
	return 100 * (after - before).Seconds() / time.Since(began).Seconds(), err
}

// opened opens a page with an empty cache, and returns the milliseconds until it paints something and until it lists
// functions.
func opened(browser context.Context, at string) (paint, list float64, err error) {
	ctx, end, err := newTab(browser, at)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	if list, err = chromedp.Run(ctx, chromedp.Poll[float64](`document.querySelector("a[href^='#/function/']") && performance.now()`)); err != nil {
		return 0, 0, err
	}
	paint, err = chromedp.Run(ctx, chromedp.Poll[float64](`performance.getEntriesByName("first-contentful-paint")[0]?.startTime`))
	return paint, list, err
}

// views are all views of the console, which load some of their files when they are shown.
var views = []string{
	"", "nodes", "queue", "deploy", "function/openfaas-fn/" + rig.FunctionName, "function/openfaas-fn/" + rig.FunctionName + "/try",
	"function/openfaas-fn/" + rig.FunctionName + "/what-if", "function/openfaas-fn/" + rig.FunctionName + "/decisions",
	"function/openfaas-fn/" + rig.FunctionName + "/logs", "function/openfaas-fn/" + rig.FunctionName + "/deployment",
}

// bundleOf shows all views of a page in turn, and returns how many files they have loaded and the bytes of these as they
// are sent.
func bundleOf(browser context.Context, at string) (bytes, files float64, err error) {
	ctx, end, err := newTab(browser, at)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	// A view is there once it has a heading and says "Loading …" no more.
	for _, view := range views {
		show := fmt.Sprintf(`location.hash = "#/%s"; ""`, view)
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[string](show)); err != nil {
			return 0, 0, err
		}
		there := `document.querySelector("main h1") !== null && !document.querySelector("main").innerText.includes("Loading …")`
		if err := chromedp.Do(ctx, chromedp.Sleep(200*time.Millisecond), chromedp.Poll[chromedp.Void](there)); err != nil {
			return 0, 0, fmt.Errorf("view %q: %w", view, err)
		}
	}
	path, err := url.Parse(at)
	if err != nil {
		return 0, 0, err
	}
	sizes, err := chromedp.Run(ctx, chromedp.Evaluate[map[string]float64](fmt.Sprintf(`Object.fromEntries(
		[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
			.filter((e) => new URL(e.name).pathname.startsWith(%q)).map((e) => [new URL(e.name).pathname, e.encodedBodySize]))`, path.Path)))
	if err != nil {
		return 0, 0, err
	}
	for name, size := range sizes {
		if size == 0 && !strings.HasSuffix(name, "/") {
			return 0, 0, fmt.Errorf("the browser does not know the size of %s", name)
		}
		bytes, files = bytes+size, files+1
	}
	return bytes, files, nil
}
