package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

const (
	// PlaceholderLabel is the label of placeholder pods. Its value is the kind of node.
	PlaceholderLabel = "faas-infer.dev/placeholder"
	// gpuNodeLabel is the label of nodes on which the agent for GPUs runs, with the value true.
	gpuNodeLabel = "faas-infer.dev/gpu"
	// placeholderPart is the part of a node that a placeholder asks for, in percent. Nodes of
	// one kind differ a little in what they leave to pods, and the pod must fit on each.
	placeholderPart = 90
	// placeholderPause is the time between two looks at placeholders while nothing changes.
	placeholderPause = 30 * time.Second
)

// PlaceholderOptions configure Placeholders.
type PlaceholderOptions struct {
	Client clientset.Interface
	// Namespace is where the pods are.
	Namespace string
	// Image is the program of the pods. It does nothing and never ends.
	Image string
	// PriorityClass is the pods' class, "" for the cluster's default.
	PriorityClass string
	// NodeSelector is that of Options. It must consist of LABEL=VALUE.
	NodeSelector string
	Logger       zerolog.Logger
}

// MissingNodes is how many nodes of a kind are missing.
type MissingNodes struct {
	// Kind is a label's value. GPU: these nodes have GPUs.
	Kind  string
	GPU   bool
	Count int
	// Size is what instances can take of such a node.
	Size cluster.Resources
}

// Placeholders makes a node autoscaler add nodes. A model's pod says on which node it runs, so no
// autoscaler ever sees one that waits for a node. A placeholder is a pod of the size of a node that
// may run on any: it waits until the autoscaler has added a node, and is deleted as soon as that
// counts. It executes nothing.
type Placeholders struct {
	options  PlaceholderOptions
	selector map[string]string

	mu      sync.Mutex
	missing []MissingNodes
	kick    chan struct{}
}

// NewPlaceholders returns Placeholders that do nothing before Want and Run.
func NewPlaceholders(o PlaceholderOptions) (*Placeholders, error) {
	if o.Image == "" || o.Namespace == "" || o.Client == nil {
		return nil, errors.New("set PlaceholderOptions.Client, Namespace and Image: placeholders need them")
	}
	selector, err := labels.ConvertSelectorToLabelsMap(o.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("node selector %q: with placeholders for nodes it must consist of LABEL=VALUE, such as \"pool=models\": %w", o.NodeSelector, err)
	}
	return &Placeholders{options: o, selector: selector, kick: make(chan struct{}, 1)}, nil
}

// Want says which nodes are missing now. It does not block. With nil, the pods stay as they are: a
// replica that does not lead says so.
func (p *Placeholders) Want(missing []MissingNodes) {
	p.mu.Lock()
	changed := !slices.EqualFunc(p.missing, missing, func(a, b MissingNodes) bool { return a.Kind == b.Kind && a.Count == b.Count })
	p.missing = missing
	p.mu.Unlock()
	if changed {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

// Run creates and deletes pods until ctx ends. It leaves them to the next provider.
func (p *Placeholders) Run(ctx context.Context) {
	ticks := time.Tick(placeholderPause)
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		case <-ticks:
		}
		why := ""
		if err := p.look(ctx); err != nil && ctx.Err() == nil {
			why = err.Error()
		}
		if why != "" && why != failed {
			p.options.Logger.Error().Str("why", why).Msg("the pods that stand for missing nodes are not as they should be; trying again")
		}
		failed = why
	}
}

// look creates the pods that are missing and deletes those that are not needed any more.
func (p *Placeholders) look(ctx context.Context) error {
	p.mu.Lock()
	missing := p.missing
	p.mu.Unlock()
	if missing == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods := p.options.Client.CoreV1().Pods(p.options.Namespace)
	found, err := pods.List(ctx, metav1.ListOptions{LabelSelector: PlaceholderLabel})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	create, remove := arrange(missing, found.Items)
	for _, name := range remove {
		if e := pods.Delete(ctx, name, metav1.DeleteOptions{}); e != nil && !apierrors.IsNotFound(e) {
			err = errors.Join(err, fmt.Errorf("delete pod %s: %w", name, e))
			continue
		}
		p.options.Logger.Info().Str("pod", name).Msg("deleted a pod that stood for a missing node")
	}
	for _, c := range create {
		pod := p.pod(c)
		if _, e := pods.Create(ctx, pod, metav1.CreateOptions{}); e != nil && !apierrors.IsAlreadyExists(e) {
			err = errors.Join(err, fmt.Errorf("create pod %s: %w", pod.Name, e))
			continue
		}
		p.options.Logger.Info().Str("pod", pod.Name).Str("kind", c.kind.Kind).Msg("created a pod that stands for a missing node")
	}
	return err
}

// placeholder is a pod to create: the number of its kind.
type placeholder struct {
	kind   MissingNodes
	number int
}

func (c placeholder) name() string {
	return fmt.Sprintf("faas-infer-node-%s-%d", c.kind.Kind, c.number)
}

// arrange decides which pods to create and to delete: for each missing node there is one. A pod
// that has got a node stays until its node is not missing any more. Otherwise each node that the
// provider does not count, for example because of a taint, would call for another one.
func arrange(missing []MissingNodes, found []corev1.Pod) (create []placeholder, remove []string) {
	there := map[string]bool{}
	for _, pod := range found {
		there[pod.Name] = true
	}
	needed := map[string]bool{}
	for _, m := range missing {
		for i := range max(0, m.Count) {
			c := placeholder{m, i}
			if needed[c.name()] = true; !there[c.name()] {
				create = append(create, c)
			}
		}
	}
	for _, pod := range found {
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.DeletionTimestamp == nil && (over || !needed[pod.Name]) {
			remove = append(remove, pod.Name)
		}
	}
	return create, remove
}

// pod is the pod of a placeholder.
func (p *Placeholders) pod(c placeholder) *corev1.Pod {
	size := c.kind.Size
	asked := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(size.CPU)*placeholderPart/100, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(size.Memory*placeholderPart/100, resource.BinarySI),
	}
	spec := corev1.PodSpec{
		PriorityClassName: p.options.PriorityClass, NodeSelector: map[string]string{},
		TerminationGracePeriodSeconds: new(int64(0)), AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65535)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "pause", Image: p.options.Image, Resources: corev1.ResourceRequirements{Requests: asked, Limits: asked},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
	for name, value := range p.selector {
		spec.NodeSelector[name] = value
	}
	if c.kind.GPU {
		spec.NodeSelector[gpuNodeLabel] = "true"
		spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: c.name(), Namespace: p.options.Namespace, Labels: map[string]string{PlaceholderLabel: c.kind.Kind, "app.kubernetes.io/part-of": "faas-infer"},
		// It must not keep a node that the provider does not count, for example because of a taint.
		Annotations: map[string]string{podspec.SafeToEvict: "true"},
	}, Spec: spec}
}
