package e2e

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/faas-infer/faas-infer/e2e/guide"
)

// picturesVar is the environment variable with the directory into which the pages' pictures are written. Without it they
// are compared with those that are there.
const picturesVar = "FAAS_INFER_PICTURES"

// pictureSize is the size of the pictures of the console.
var pictureSize = image.Pt(1000, 620)

// headingsOf gives the headings of a view. Figures and sentences differ each time; these do not.
const headingsOf = `[...document.querySelectorAll("h1, h2, .tabs a, .tiles dt, [role=columnheader]")]
	.filter((e) => e.checkVisibility()).map((e) => e.textContent.trim()).join("\n")`

// looks returns what looks at the console of the provider that the page has started, at its address of the guide. The
// browser starts with the first look.
func (d *desk) looks(t *testing.T) func(context.Context, guide.Block) error {
	var c *console
	return func(_ context.Context, b guide.Block) error {
		if c == nil {
			c = &console{browser: browse(t)}
			c.open(t, d.console(t), "")
			c.do(t, chromedp.EmulateViewport(int64(pictureSize.X), int64(pictureSize.Y)), chooses("light"))
		}
		if b.Language == guide.Press {
			c.do(t, until(fmt.Sprintf(`(() => {
				const b = [...document.querySelectorAll("main button.primary")].find((x) => x.textContent.startsWith(%s));
				b?.click();
				return b !== undefined })()`, strconv.Quote(b.Text))))
			c.press(t, c.eval(t, `document.querySelector("dialog .primary").textContent`))
			c.do(t, until(`document.querySelector("dialog") === null`))
			return nil
		}
		c.goes(t, b.Text, "main h1")
		c.says(t, b.Words...)
		return c.picture(t, filepath.Base(b.Image))
	}
}

// chooses chooses a theme.
func chooses(theme string) chromedp.Action[chromedp.Void] {
	return until(fmt.Sprintf(`(() => {
		const s = document.querySelector(".theme select");
		if (s.value !== %q) { s.value = %[1]q; s.dispatchEvent(new Event("change", {bubbles: true})) }
		return document.documentElement.dataset.theme === %[1]q })()`, theme))
}

// console returns the address of the page's console for a browser, which is not in the page's network. It needs no
// password there.
func (d *desk) console(t *testing.T) string {
	t.Helper()
	password := strings.TrimSpace(readAll(filepath.Join(d.state, "secrets", "basic-auth-password")))
	target := &url.URL{Scheme: "http", Host: "127.0.0.1:8080"}
	transport := &http.Transport{DialContext: d.network.dial}
	door := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.Out.SetBasicAuth("admin", password)
	}})
	t.Cleanup(func() {
		door.CloseClientConnections()
		door.Close()
		transport.CloseIdleConnections()
	})
	return door.URL + "/ui/"
}

// picture writes the picture of a view, or checks that the file in docs/images has the same size and headings.
func (c *console) picture(t *testing.T, name string) error {
	t.Helper()
	headings := strings.Split(c.eval(t, headingsOf), "\n")
	file, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return fmt.Errorf("the picture %s: %w", name, err)
	}
	view, err := png.Decode(bytes.NewReader(file))
	if err == nil {
		file, err = guide.EncodePicture(view, headings)
	}
	if err != nil {
		return fmt.Errorf("the picture %s: %w", name, err)
	}
	if to := os.Getenv(picturesVar); to != "" {
		return os.WriteFile(filepath.Join(to, name), file, 0o644)
	}
	kept, err := os.ReadFile(filepath.Join("..", "docs", "images", name))
	if err != nil {
		return fmt.Errorf("%w; run make screenshots", err)
	}
	size, was, err := guide.PictureHeadings(kept)
	if err != nil || size != view.Bounds().Size() || !slices.Equal(was, headings) {
		return fmt.Errorf("docs/images/%s is old: it has %v and %q, the console %v and %q (%v); run make screenshots",
			name, size, was, view.Bounds().Size(), headings, err)
	}
	return nil
}
