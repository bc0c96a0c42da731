package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// browser is one tab of a headless Chromium.
type browser struct{ ctx context.Context }

// browse starts a Chromium until the test ends.
func browse(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(suite.chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1400, 1600),
		// Fonts and the function store are elsewhere; nobody waits for them here.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(func() {
		defer stop()
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("the browser's end: %v", err) // It says nothing of what was tested.
		}
	})
	// The first action's context is the browser's own, so it has no limit.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", suite.chromium, err)
	}
	return &browser{ctx}
}

// do runs actions one after another. If one fails, the test fails with the page's content.
func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for i, action := range actions {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		err := chromedp.Do(ctx, action)
		cancel()
		if err != nil {
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			t.Fatalf("action %d: %v; the page says:\n%s", i+1, err, text)
		}
	}
}

// until waits until a JavaScript expression is true.
func until(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience))
}

// listed returns the selector of a function's entry in the list on the left.
func listed(function string) string {
	return fmt.Sprintf("//md-sidenav//md-list-item[.//p[normalize-space()=%q]]//button", function)
}

// button returns the selector of an enabled button with a text in a dialog or card.
func button(within, text string) string {
	return fmt.Sprintf("//%s//button[not(@disabled) and normalize-space()=%q]", within, text)
}

// field returns the selector of what Angular binds to a name, within an element.
func field(within, model string) string { return fmt.Sprintf("%s [ng-model=%q]", within, model) }

// click waits until an element is visible and clicks on it. An animation may still move or
// cover it, so the page itself makes the click.
func click(path string) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.WaitVisible(path), until(fmt.Sprintf(
		"(() => { const e = document.evaluate(%s, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue;"+
			" if (!e || e.disabled) return false; e.click(); return true })()", strconv.Quote(path))))
}

// fill types text into a visible empty field. A dialog that is still opening takes the
// focus and some keys. fill sets the value if it is incomplete afterwards, and notifies the
// page.
func fill(selector, text string) chromedp.Action[chromedp.Void] {
	at := chromedp.CSS(selector)
	return chromedp.Steps(chromedp.WaitVisible(at), chromedp.SendKeys(at, text), until(fmt.Sprintf(
		"(() => { const e = document.querySelector(%s), text = %s; if (e.value === text) return true;"+
			" e.value = text; e.dispatchEvent(new Event('input', {bubbles: true})); return false })()",
		strconv.Quote(selector), strconv.Quote(text))))
}

// holds waits until a field's value contains all words.
func holds(selector string, words ...string) chromedp.Action[chromedp.Void] {
	var all strings.Builder
	for _, w := range words {
		fmt.Fprintf(&all, " && e.value.includes(%s)", strconv.Quote(w))
	}
	return until(fmt.Sprintf("(() => { const e = document.querySelector(%s); return e !== null%s })()", strconv.Quote(selector), all.String()))
}
