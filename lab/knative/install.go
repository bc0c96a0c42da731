package knative

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

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
	if err := b.installOurs(ctx); err != nil {
		return fmt.Errorf("install faas-infer: %w", err)
	}
	b.say("faas-infer is installed")
	if err := b.installTheirs(ctx); err != nil {
		return fmt.Errorf("install Knative: %w", err)
	}
	b.say("Knative is installed")
	return nil
}

// installOurs installs faas-infer from yaml/, with requests for CPU that leave room for Knative.
func (b *bench) installOurs(ctx context.Context) error {
	yaml := func(name string) string { return filepath.Join(b.built.Checkout, "yaml", name) }
	image := b.RegistryHost() + "/faas-infer/provider:latest"
	base := b.built.file("base.tar")
	if _, err := run(ctx, b.built.Kubernetes, "image", "provider", "--base", base, "--push", image); err != nil {
		return err
	}
	text, err := os.ReadFile(yaml("provider.yaml"))
	if err != nil {
		return err
	}
	edits := strings.NewReplacer("image: faas-infer/provider\n", "image: "+image+"\n",
		"requests: {cpu: 500m, memory: 512Mi", "requests: {cpu: 100m, memory: 128Mi")
	manifest := edits.Replace(string(text))
	if err := b.apply(ctx, "", "-f", yaml("options/namespaces/namespaces.yaml")); err != nil {
		return err
	}
	if err := b.Define(ctx, yaml("crd.yaml")); err != nil {
		return err
	}
	if err := b.apply(ctx, "", "-f", yaml("rbac.yaml")); err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth",
		"--from-literal=basic-auth-user=admin", "--from-literal=basic-auth-password=secret"); err != nil {
		return err
	}
	if err := b.apply(ctx, manifest, "-f", "-"); err != nil {
		return err
	}
	if err := b.rolledOut(ctx, "openfaas", "faas-infer"); err != nil {
		return err
	}
	// The node has no route to the services' own addresses.
	_, err = b.Kubectl(ctx, "", "-n", "openfaas", "patch", "service/faas-infer",
		"--patch", `{"spec":{"type":"NodePort"}}`)
	return err
}

// installTheirs installs Knative from the objects of its modules.
func (b *bench) installTheirs(ctx context.Context) error {
	var err error
	if err := b.Define(ctx, filepath.Join(b.built.Knative, "crds.yaml")); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(b.built.Knative, "core.yaml"))
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
	if err := b.apply(ctx, manifest, "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, program := range theirPrograms {
		if program == "queue" {
			continue // It runs beside each instance.
		}
		if err := b.rolledOut(ctx, "knative-serving", program); err != nil {
			return err
		}
	}
	err = await(ctx, "Knative's webhook to check objects", func() error {
		return b.apply(ctx, checked, "--server-side", "-f", "-")
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
	files := map[string]string{"/ko-app/" + program: filepath.Join(b.built.Knative, "bin", program)}
	config := v1.Config{Entrypoint: []string{"/ko-app/" + program}, User: "65532:65532"}
	return b.PushTools("knative/"+program+":v1", files, config)
}

// apply runs kubectl apply.
func (b *bench) apply(ctx context.Context, stdin string, arguments ...string) error {
	_, err := b.Kubectl(ctx, stdin, append([]string{"apply"}, arguments...)...)
	return err
}

// rolledOut waits until a Deployment is available.
func (b *bench) rolledOut(ctx context.Context, namespace, name string) error {
	_, err := b.Kubectl(ctx, "", "-n", namespace, "rollout", "status", "deployment/"+name, "--timeout=5m")
	if err != nil {
		pods, _ := b.Kubectl(ctx, "", "-n", namespace, "get", "pods,events", "-o", "wide") // For the error's reader.
		return fmt.Errorf("%w\n%s", err, pods)
	}
	return nil
}
