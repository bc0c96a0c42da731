package knative

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Script builds Knative and prints its directory, for kubelet.Prepare.
const Script = "knative.sh"

// domain is the one below which Knative's services have their hosts.
const domain = "example.com"

// ingressClass is the name of the networking layer in Knative's objects.
const ingressClass = "faas-infer-lab"

// theirPrograms are Knative's programs, each of which is an image.
var theirPrograms = []string{"activator", "autoscaler", "controller", "queue", "webhook"}

// theirSettings are the settings of Knative that differ from its defaults, by object and key. The
// shortest grace period lets a cold start follow another one sooner; it does not change how long it
// takes.
var theirSettings = []struct{ object, patch string }{
	{"config-network", `{"data":{"ingress-class":"` + ingressClass + `"}}`},
	{"config-domain", `{"data":{"` + domain + `":""}}`},
	{"config-autoscaler", `{"data":{"scale-to-zero-grace-period":"6s"}}`},
}

// theirAnnotations are those of the model's revisions: none to one instance, which goes after the
// shortest window without requests. No activator is in the way while there is an instance.
var theirAnnotations = map[string]string{
	"autoscaling.knative.dev/min-scale":             "0",
	"autoscaling.knative.dev/max-scale":             "1",
	"autoscaling.knative.dev/window":                "6s",
	"autoscaling.knative.dev/target-burst-capacity": "0",
}

// install installs both systems.
func (b *bench) install(ctx context.Context) error {
	if err := b.Install(ctx); err != nil {
		return fmt.Errorf("install faas-infer: %w", err)
	}
	b.say("faas-infer is installed")
	if err := b.installTheirs(ctx); err != nil {
		return fmt.Errorf("install Knative: %w", err)
	}
	b.say("Knative is installed")
	return nil
}

// installTheirs installs Knative from the objects of its modules.
func (b *bench) installTheirs(ctx context.Context) error {
	var err error
	if err := b.Define(ctx, filepath.Join(b.Printed[Script], "crds.yaml")); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(b.Printed[Script], "core.yaml"))
	if err != nil {
		return err
	}
	manifest := string(text)
	for _, program := range theirPrograms {
		image, err := b.pushTheirs(program)
		if err != nil {
			return err
		}
		manifest = strings.ReplaceAll(manifest, "ko://knative.dev/serving/cmd/"+program+"\n", image+"\n")
	}
	manifest, checked := apart(manifest)
	if err := b.Apply(ctx, manifest, "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, program := range theirPrograms {
		if program == "queue" {
			continue // It runs beside each instance.
		}
		if err := b.RolledOut(ctx, "knative-serving", program); err != nil {
			return err
		}
	}
	err = await(ctx, "Knative's webhook to check objects", func() error {
		return b.Apply(ctx, checked, "--server-side", "-f", "-")
	})
	if err != nil {
		return err
	}
	if b.ingress, err = StartIngress(ctx, b.Config(), b.Addresses.Node); err != nil {
		return err
	}
	for _, s := range theirSettings {
		err := await(ctx, "Knative to take a setting of "+s.object, func() error {
			_, err := b.Kubectl(ctx, "", "-n", "knative-serving", "patch", "configmap/"+s.object, "--type", "merge",
				"--patch", s.patch)
			return err
		})
		if err != nil {
			return err
		}
		b.say("Knative's %s: %s", s.object, s.patch)
	}
	b.say("Knative's revisions: %v", theirAnnotations)
	return nil
}

// apart separates the documents of Knative's objects that its webhook checks from the others, of
// which the webhook is one.
func apart(manifest string) (others, checked string) {
	const between = "\n---\n"
	for document := range strings.SplitSeq(manifest, between) {
		if strings.Contains(document, "\nkind: Certificate\n") || strings.Contains(document, "\nkind: Image\n") {
			checked += between + document
			continue
		}
		others += between + document
	}
	return others, checked
}

// pushTheirs pushes the image of one of Knative's programs and returns its name.
func (b *bench) pushTheirs(program string) (string, error) {
	files := map[string]string{"/ko-app/" + program: filepath.Join(b.Printed[Script], "bin", program)}
	config := v1.Config{Entrypoint: []string{"/ko-app/" + program}, User: "65532:65532"}
	return b.PushTools("knative/"+program+":v1", files, config)
}
