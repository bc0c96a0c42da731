package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"
)

// A user works with the gateway's web interface in a real browser. The user sees the
// deployed functions, deploys one, sends JSON to it and to a model, sees the reason of a
// refused deployment, and removes what was deployed.
func TestWebInterface(t *testing.T) {
	gatewayTests.takeHere(t)
	p := newPlace(t)
	s := p.upBehind(t)
	deploy(t, s.faas, scaled(function("ready-model", "identity:latest", "2s"), "1", "1"))
	b := browse(t)
	at, err := url.Parse(gatewayURL + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("admin", s.password)
	b.do(t, chromedp.Navigate(at.String()))
	for _, name := range []string{"identity", "mnist", "ready-model"} {
		b.do(t, chromedp.WaitVisible(listed(name)))
	}

	if onCluster == nil {
		b.refused(t) // On a cluster only nodes look for an image, and the status says what they found.
	}
	b.deploys(t, "from-the-form", "functions/alpine:latest", "cat")
	s.awaitAvailable(t, "from-the-form", 1)
	b.invokes(t, "from-the-form", `{"from": "the browser"}`, `"from"`, `"the browser"`)
	b.invokes(t, "ready-model", `{"instances": [[1.5, 2.5]]}`, `"predictions"`, "1.5", "2.5")
	b.removes(t, "from-the-form")
	s.await(t, patience, "the removed function to be gone", func() bool {
		list, err := s.faas.GetFunctions(t.Context(), "openfaas-fn")
		for _, f := range list {
			if f.Name == "from-the-form" {
				return false
			}
		}
		return err == nil && len(list) == 3
	})
	s.stop(t)
}

const form = "#newfunction-dialog"

// opensTheForm opens the dialog at the tab for a custom image.
func (b *browser) opensTheForm(t *testing.T) {
	t.Helper()
	b.do(t, click("//md-sidenav//md-list-item[.//p[normalize-space()='Deploy New Function']]//button"),
		click("//md-dialog//md-tab-item[normalize-space()='Custom']"))
}

func (b *browser) deploys(t *testing.T, name, image, process string) {
	t.Helper()
	b.opensTheForm(t)
	b.do(t, fill(field(form, "item.image"), image), fill(field(form, "item.service"), name), fill(field(form, "item.envProcess"), process),
		click(button("md-dialog", "Deploy")), chromedp.WaitNotPresent(chromedp.CSS(form)), chromedp.WaitVisible(listed(name)))
}

// refused deploys a missing image. The form stays open and shows the reason.
func (b *browser) refused(t *testing.T) {
	t.Helper()
	b.opensTheForm(t)
	b.do(t, fill(field(form, "item.image"), "nowhere:latest"), fill(field(form, "item.service"), "refused"),
		click(button("md-dialog", "Deploy")),
		until(fmt.Sprintf("document.querySelector('%s .validation-error').innerText.includes('nowhere:latest')", form)),
		click(button("md-dialog", "Close Dialog")), chromedp.WaitNotPresent(chromedp.CSS(form)))
}

// invokes sends a JSON body to a function and waits for an answer with the words.
func (b *browser) invokes(t *testing.T, name, body string, words ...string) {
	t.Helper()
	b.do(t, click(listed(name)), chromedp.WaitVisible("//span[contains(@class, 'md-headline') and normalize-space()='"+name+"']"),
		click("//md-radio-button[@value='json']"), fill(field("md-content", "invocation.request"), body),
		click(button("md-card", "Invoke")), holds(field("md-content", "invocationStatus"), "200"),
		holds(field("md-content", "invocationResponse"), words...))
}

func (b *browser) removes(t *testing.T, name string) {
	t.Helper()
	b.do(t, click(listed(name)), click("//md-card//button[@aria-label='Delete']"),
		click(button("md-dialog", "OK")), chromedp.WaitNotPresent(listed(name)))
}

// deploy deploys with a client, and fails the test if the deployment is refused.
func deploy(t *testing.T, faas *sdk.Client, f types.FunctionDeployment) {
	t.Helper()
	if status, err := faas.Deploy(t.Context(), f); err != nil || status != http.StatusAccepted {
		t.Fatalf("deploy %s: %d, %v", f.Service, status, err)
	}
}

// ordinary returns a function that runs a process for each request, with the built-in
// bundle without a process.
func ordinary(name, process string) types.FunctionDeployment {
	return types.FunctionDeployment{Service: name, Namespace: "openfaas-fn", Image: "functions/alpine:latest", EnvProcess: process}
}
