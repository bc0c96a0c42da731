package deployments

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// ordinarySelector selects the objects of ordinary functions: pods of models have an instance label.
const ordinarySelector = v1alpha1.ManagedByLabel + "=" + v1alpha1.ManagedBy + "," + v1alpha1.FunctionLabel + ",!" + v1alpha1.InstanceLabel

// watch begins to watch the pods and Deployments of ordinary functions.
func (c *Controller) watch() ([]cache.InformerSynced, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.options.Client, 0, informers.WithTransform(strip),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = ordinarySelector }))
	pods, deployments := factory.Core().V1().Pods().Informer(), factory.Apps().V1().Deployments().Informer()
	var synced []cache.InformerSynced
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: handler(c.seePod, c.losePod), deployments: handler(c.seeDeployment, c.loseDeployment),
	} {
		if err := informer.SetWatchErrorHandler(c.watchFailed); err != nil {
			return nil, err
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
		c.tasks.Begin(func() { informer.Run(c.tasks.Context().Done()) })
	}
	return synced, nil
}

// watchFailed logs that a watch of the API server failed. The informer tries again.
func (c *Controller) watchFailed(_ *cache.Reflector, err error) {
	c.mu.Lock()
	c.watchError = err
	c.mu.Unlock()
	c.options.Logger.Warn().Err(err).Msg("could not watch pods or Deployments; trying again with their last known state")
}

// strip drops the fields that this package does not read: most of an object's size.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		o.ManagedFields = nil
		spec := corev1.PodSpec{NodeName: o.Spec.NodeName, Volumes: podspec.Certificates(o)}
		for i := range o.Spec.Containers {
			spec.Containers = append(spec.Containers, corev1.Container{Name: o.Spec.Containers[i].Name})
		}
		o.Spec = spec
	case *appsv1.Deployment:
		o.ManagedFields = nil
		o.Spec.Template = corev1.PodTemplateSpec{}
	}
	return object, nil
}

func handler[T any](see, lose func(T)) cache.ResourceEventHandler {
	on := func(object any, f func(T)) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if o, ok := object.(T); ok {
			f(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { on(o, see) },
		UpdateFunc: func(_, o any) { on(o, see) },
		DeleteFunc: func(o any) { on(o, lose) },
	}
}

// deployed is the state of a function's Deployment.
type deployed struct {
	name       string
	uid        types.UID
	generation int64
	replicas   int
	// hash and revision are those that it was made from. owner is the UID of the Function
	// object.
	hash     string
	revision uint64
	owner    types.UID
	// watchdog is the value of [WatchdogAnnotation].
	watchdog string
	leaving  bool
	// failure is why the cluster creates no pods for it.
	failure string
}

func readDeployment(d *appsv1.Deployment) deployed {
	out := deployed{name: d.Name, uid: d.UID, generation: d.Generation, replicas: 1, hash: d.Annotations[AppliedAnnotation], watchdog: d.Annotations[WatchdogAnnotation], leaving: d.DeletionTimestamp != nil}
	if d.Spec.Replicas != nil {
		out.replicas = int(*d.Spec.Replicas)
	}
	// An annotation that is no number leaves 0, which is no revision.
	out.revision, _ = strconv.ParseUint(d.Annotations[v1alpha1.RevisionAnnotation], 10, 64)
	for _, o := range d.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			out.owner = o.UID
		}
	}
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			out.failure = condition.Message
		}
	}
	return out
}

// fullName returns the full name of the function that an object was made for.
func fullName(o metav1.Object) string {
	return provider.FullName(o.GetLabels()[v1alpha1.FunctionLabel], o.GetNamespace())
}

// seeDeployment applies a Deployment's new state.
func (c *Controller) seeDeployment(d *appsv1.Deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, now := fullName(d), readDeployment(d)
	// The answer to an apply may be newer than the watch's state.
	if before, ok := c.deployed[name]; ok && before.uid == now.uid && before.generation > now.generation {
		return
	}
	if c.deployed[name] != now {
		c.deployed[name] = now
		c.Wake()
	}
}

func (c *Controller) loseDeployment(d *appsv1.Deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name := fullName(d); c.deployed[name].uid == d.UID {
		delete(c.deployed, name)
		c.Wake()
	}
}

// seePod applies a pod's new state.
func (c *Controller) seePod(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := ReadPod(p)
	of, ok := c.pods[seen.Function]
	if !ok {
		of = map[cluster.InstanceID]*instance{}
		c.pods[seen.Function] = of
	}
	in, ok := of[seen.ID]
	if !ok {
		in = &instance{}
		of[seen.ID] = in
	}
	in.Pod = seen
	if fn := c.functions[seen.Function]; fn != nil {
		fn.follow(in)
		c.Wake()
	}
}

func (c *Controller) losePod(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := ReadPod(p)
	of := c.pods[seen.Function]
	in, ok := of[seen.ID]
	if !ok {
		return
	}
	if delete(of, seen.ID); len(of) == 0 {
		delete(c.pods, seen.Function)
	}
	in.endProbes()
	if fn := c.functions[seen.Function]; fn != nil {
		fn.forwarder.Forget(seen.ID)
		fn.choose()
		c.Wake()
	}
}
