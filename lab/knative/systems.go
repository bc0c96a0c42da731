package knative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/lab/kubelet"
)

// system is one of the two that serve the model.
type system struct {
	name   string
	client *kubernetes.Clientset
	// url and host are where requests go. host is "" for the URL's own.
	url, host string
	// namespace and selector select the model's pods.
	namespace, selector string
	// deploy makes the model of an image serve.
	deploy func(ctx context.Context, image string) error
}

// versions are the tags of the model's two images. They differ in a small file, so that one can
// replace the other.
var versions = []string{"v1", "v2"}

// our function's manifest: it may have one instance, which goes after 6 s without a request. Its
// objective is far beyond what the requests take, because Knative knows none.
const ourManifest = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: digits, namespace: openfaas-fn}
spec:
  image: %s
  limits: {cpu: %s}
  annotations: {com.openfaas.slo.latency: 2s, com.openfaas.infer.keep-alive: 6s}
  labels: {com.openfaas.scale.max: "1"}
`

// theirManifest is Knative's object for the same, with the container of our instance. 6 s is the
// shortest window that Knative takes.
type theirManifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       theirSpec         `json:"spec"`
}

type theirSpec struct {
	Template struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			ContainerConcurrency int                `json:"containerConcurrency"`
			Containers           []corev1.Container `json:"containers"`
		} `json:"spec"`
	} `json:"template"`
}

// systems deploys the model with both systems.
func (b *bench) systems(ctx context.Context) (ours, theirs *system, err error) {
	if err := b.pushModel(ctx); err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(b.Config())
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	if ours, err = b.ourSystem(ctx, client); err != nil {
		return nil, nil, err
	}
	pods, err := ours.staying(ctx)
	if err != nil || len(pods) != 1 {
		return nil, nil, errors.Join(err, fmt.Errorf("faas-infer has %d instances, want 1", len(pods)))
	}
	container := pods[0].Spec.Containers[0]
	b.say("both run %s %s with %v", container.Image, strings.Join(container.Args, " "), container.Resources.Limits)
	if theirs, err = b.theirSystem(ctx, client, container); err != nil {
		return nil, nil, err
	}
	return ours, theirs, nil
}

// pushModel pushes the model's images.
func (b *bench) pushModel(ctx context.Context) error {
	base := b.Base()
	model := b.File("digits.onnx")
	if _, err := kubelet.Run(ctx, b.Program, "model", "make", "mnist", "--out", model); err != nil {
		return err
	}
	for _, version := range versions {
		root, image := b.File("bundles"), "functions/digits:"+version
		if _, err := kubelet.Run(ctx, b.Program, "bundle", model, "--root", root, "--image", image); err != nil {
			return err
		}
		dir := filepath.Join(root, "functions", "digits", version)
		if err := os.WriteFile(filepath.Join(dir, "VERSION"), []byte(version+"\n"), 0o644); err != nil {
			return err
		}
		printed, err := kubelet.Run(ctx, b.Kubernetes, "image", "function", dir, "--base", base,
			"--push", b.RegistryHost()+"/"+image)
		if err != nil {
			return err
		}
		pushed := printed[strings.LastIndex(printed, " ")+1:]
		if !strings.Contains(pushed, "@sha256:") {
			return fmt.Errorf("the digest of %s is not in %q", image, printed)
		}
		b.images = append(b.images, pushed)
	}
	return nil
}

// ourSystem deploys the model with faas-infer and waits for its first answer.
func (b *bench) ourSystem(ctx context.Context, client *kubernetes.Clientset) (*system, error) {
	address, err := b.Address(ctx)
	if err != nil {
		return nil, err
	}
	s := &system{
		name: "faas-infer", client: client, namespace: "openfaas-fn", selector: "faas_function=digits",
		url: "http://" + address + "/function/digits",
	}
	s.deploy = func(ctx context.Context, image string) error {
		_, err := b.Kubectl(ctx, fmt.Sprintf(ourManifest, image, b.CPU), "apply", "-f", "-")
		return err
	}
	return s, b.begin(ctx, s)
}

// theirSystem deploys the model with Knative: the same container, as Knative's guide says.
func (b *bench) theirSystem(
	ctx context.Context, client *kubernetes.Clientset, like corev1.Container,
) (*system, error) {
	const namespace = "knative-fn"
	if _, err := b.Kubectl(ctx, "", "create", "namespace", namespace); err != nil {
		return nil, err
	}
	s := &system{
		name: "Knative", client: client, namespace: namespace, selector: "serving.knative.dev/service=digits",
		url: b.ingress.URL + "/", host: "digits." + namespace + "." + domain,
	}
	s.deploy = func(ctx context.Context, image string) error {
		text, err := json.Marshal(theirService(namespace, image, like))
		if err != nil {
			return err
		}
		_, err = b.Kubectl(ctx, string(text), "apply", "-f", "-")
		return err
	}
	return s, b.begin(ctx, s)
}

// theirService returns the object with which Knative serves an image.
func theirService(namespace, image string, like corev1.Container) theirManifest {
	m := theirManifest{APIVersion: "serving.knative.dev/v1", Kind: "Service"}
	m.Metadata = metav1.ObjectMeta{Name: "digits", Namespace: namespace}
	m.Spec.Template.Metadata.Annotations = theirAnnotations
	m.Spec.Template.Spec.Containers = []corev1.Container{{
		Name:      "digits",
		Image:     image,
		Args:      slices.Clone(like.Args),
		Resources: like.Resources,
		Env:       slices.Clone(like.Env),
		Ports:     []corev1.ContainerPort{{ContainerPort: like.Ports[0].ContainerPort}},
	}}
	return m
}

// begin serves each image once, so that the node has both and has started them.
func (b *bench) begin(ctx context.Context, s *system) error {
	for _, image := range []string{b.images[1], b.images[0]} {
		if err := s.deploy(ctx, image); err != nil {
			return fmt.Errorf("deploy %s with %s: %w", image, s.name, err)
		}
		c := newClients(s)
		err := await(ctx, "an answer of "+s.name+" with "+image, func() error {
			if err := c.ask(ctx); err != nil {
				return err
			}
			return s.only(ctx, image)
		})
		if err != nil {
			return err
		}
		b.say("%s serves %s", s.name, image)
	}
	return nil
}

// pods lists the model's pods, those that are about to go included.
func (s *system) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: s.selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// staying lists the model's pods that have not been told to go.
func (s *system) staying(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := s.pods(ctx)
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
}

// none returns nil if the model has no pod.
func (s *system) none(ctx context.Context) error {
	pods, err := s.pods(ctx)
	if err == nil && len(pods) > 0 {
		err = fmt.Errorf("%s has %d pods", s.name, len(pods))
	}
	return err
}

// only returns nil if one pod is ready with the image, and all others have been told to go.
func (s *system) only(ctx context.Context, image string) error {
	pods, err := s.staying(ctx)
	if err != nil {
		return err
	}
	if len(pods) != 1 || !ready(pods[0]) {
		return fmt.Errorf("%s has %d pods", s.name, len(pods))
	}
	if !slices.ContainsFunc(pods[0].Spec.Containers, func(c corev1.Container) bool { return c.Image == image }) {
		return fmt.Errorf("%s still runs %s", s.name, pods[0].Spec.Containers[0].Image)
	}
	return nil
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
