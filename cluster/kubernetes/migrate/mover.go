package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// inParallel is the maximum number of functions that move at a time. Each has its pods twice.
	inParallel = 4
	// pause is the time between two looks at what a step waits for.
	pause = 250 * time.Millisecond
	// manager is the owner of the fields that a mover writes.
	manager = "faas-infer-import"
)

// Mover carries plans out.
type Mover struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Patience is how long one function may take to answer.
	Patience time.Duration
	// Report gets each step when it has ended, with its error. Calls do not overlap. It may be nil.
	Report func(s Step, err error)
}

// Run carries out the steps of a plan, some at a time, and returns how many failed. A step that is
// refused counts as failed. One that fails leaves faas-netes' Deployment serving; the same plan,
// made again, continues where it stopped.
func (m *Mover) Run(ctx context.Context, steps []Step) (failed int) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	free := make(chan struct{}, inParallel)
	for _, s := range steps {
		free <- struct{}{}
		wait.Go(func() {
			defer func() { <-free }()
			err := m.step(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
			}
			if m.Report != nil {
				m.Report(s, err)
			}
		})
	}
	wait.Wait()
	return failed
}

func (m *Mover) step(ctx context.Context, s Step) error {
	ctx, cancel := context.WithTimeout(ctx, m.Patience)
	defer cancel()
	switch {
	case s.Action == Refuse:
		return errors.New(s.Why)
	case s.undo:
		return m.Undo(ctx, s)
	}
	return m.Import(ctx, s)
}

// Import writes the function, waits until its instances are ready and the Service has their addresses, and scales faas-netes' Deployment
// to 0. Until then both serve: the Deployment's Service selects the pods of both.
func (m *Mover) Import(ctx context.Context, s Step) error {
	if err := m.write(ctx, s); err != nil {
		return err
	}
	if err := m.answers(ctx, s); err != nil {
		return err
	}
	if !s.Scale {
		return nil
	}
	if err := m.reached(ctx, s, oursOf); err != nil {
		return err
	}
	pods, _ := s.pods()
	return m.scale(ctx, s, 0, fmt.Sprintf("%q", fmt.Sprint(pods)))
}

// Undo scales faas-netes' Deployment to what it was, waits until its pods are available and the Service has their
// addresses, and takes the function away, or gives it the spec that it had before the import. It waits also for a Deployment
// that was never scaled.
func (m *Mover) Undo(ctx context.Context, s Step) error {
	if s.Scale {
		label := fmt.Sprintf("%q", s.Deployment.Labels[RetiredLabel])
		if err := m.scale(ctx, s, s.Pods, label); err != nil {
			return err
		}
	}
	if s.Pods > 0 {
		if err := m.serves(ctx, s); err != nil {
			return err
		}
		if err := m.reached(ctx, s, theirsOf); err != nil {
			return err
		}
	}
	if err := m.takeBack(ctx, s); err != nil || !s.Scale {
		return err
	}
	return m.scale(ctx, s, s.Pods, "null") // A step that fails before this one can be found again.
}

// write creates or replaces the function.
func (m *Mover) write(ctx context.Context, s Step) error {
	if s.Action == Keep {
		return nil
	}
	made := mark{Hash: hash(s.spec)}
	if s.found != nil {
		before := s.found.Spec
		before.Instances = nil // It is the load of now, not of the time of an undoing.
		made.Before = &before
		if earlier, ok := readMark(s.found); ok {
			made.Before = earlier.Before
		}
		return m.update(ctx, s, made.String())
	}
	u, err := written(&v1alpha1.Function{Spec: s.spec, ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Namespace: s.Namespace, Annotations: map[string]string{ImportedAnnotation: made.String()}}})
	if err != nil {
		return err
	}
	_, err = m.functions(s).Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		return errors.New("somebody has created the function meanwhile; run the import again")
	}
	if err != nil {
		return fmt.Errorf("create the function: %w", err)
	}
	return nil
}

// errChanged is the error of a step whose function is no longer the one that the plan has seen.
var errChanged = errors.New("somebody has changed the function meanwhile; run the import again")

// update gives the function the step's spec and a mark, "" for none. It fails if somebody has changed
// the spec since the plan. The provider changes the rest of the object at any time, and
// spec.instances, which stays as it is now.
func (m *Mover) update(ctx context.Context, s Step, mark string) error {
	err := m.onFound(ctx, s, func(u *unstructured.Unstructured, now *v1alpha1.Function) error {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[ImportedAnnotation] = mark; mark == "" {
			delete(annotations, ImportedAnnotation)
		}
		u.SetAnnotations(annotations)
		spec := s.spec
		spec.Instances = now.Spec.Instances
		with, err := written(&v1alpha1.Function{Spec: spec})
		if err != nil {
			return err
		}
		u.Object["spec"] = with.Object["spec"]
		_, err = m.functions(s).Update(ctx, u, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
	if err != nil && !errors.Is(err, errChanged) {
		return fmt.Errorf("write the function: %w", err)
	}
	return err
}

// onFound reads the function and changes it, again and again while others change it at the same time.
// change must fail with a conflict if the object is no longer u. onFound fails with errChanged if the function
// is not as the plan has seen it.
func (m *Mover) onFound(ctx context.Context, s Step, change func(u *unstructured.Unstructured, now *v1alpha1.Function) error) error {
	for {
		u, err := m.functions(s).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now, err := function(u)
		if err != nil {
			return err
		}
		if !unchanged(now, s.found) {
			return errChanged
		}
		if err := change(u, now); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (m *Mover) functions(s Step) dynamic.ResourceInterface {
	return m.Dynamic.Resource(v1alpha1.Resource).Namespace(s.Namespace)
}

// written converts a function for the API server. The provider writes the status.
func written(f *v1alpha1.Function) (*unstructured.Unstructured, error) {
	f.APIVersion, f.Kind = v1alpha1.GroupVersion.String(), v1alpha1.Kind
	text, err := json.Marshal(f)
	u := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(text, &u.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("write the function: %w", err)
	}
	delete(u.Object, "status")
	return u, nil
}

// answers waits until the function's instances are ready.
func (m *Mover) answers(ctx context.Context, s Step) error {
	return await(ctx, func() (string, error) {
		u, err := m.functions(s).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		f, err := function(u)
		if err != nil {
			return "", err
		}
		accepted, ready := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionAccepted), meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case accepted == nil || ready == nil || f.Status.ObservedGeneration != f.Generation:
			return "no provider of faas-infer has looked at the function: does one run, and has the namespace the annotation openfaas=1?", nil
		case accepted.Status != metav1.ConditionTrue:
			return "", fmt.Errorf("the provider does not accept it: %s", accepted.Message)
		case ready.Status != metav1.ConditionTrue:
			return ready.Message, nil
		}
		return "", nil
	})
}

// serves waits until the Deployment's pods are available: as many as the plan says, or as it has now if
// faas-netes has scaled it down since, but one at least.
func (m *Mover) serves(ctx context.Context, s Step) error {
	return await(ctx, func() (string, error) {
		d, err := m.Client.AppsV1().Deployments(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		want := max(1, min(s.Pods, replicasOf(d)))
		if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas < want {
			return fmt.Sprintf("faas-netes' Deployment has %d of %d pods", d.Status.AvailableReplicas, want), nil
		}
		return "", nil
	})
}

// await looks until nothing is missing any more. It returns what is missing when ctx ends.
func await(ctx context.Context, look func() (missing string, err error)) error {
	for {
		missing, err := look()
		if err != nil && ctx.Err() == nil || err == nil && missing == "" {
			return err
		}
		switch waited := backoff.Wait(ctx, pause); {
		case waited:
		case err != nil:
			return err
		default:
			return fmt.Errorf("it took too long: %s; faas-netes still serves", missing)
		}
	}
}

// scale changes the Deployment's number of pods and its mark, a JSON value.
func (m *Mover) scale(ctx context.Context, s Step, pods int32, label string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%s}},"spec":{"replicas":%d}}`, s.Deployment.UID, RetiredLabel, label, pods)
	_, err := m.Client.AppsV1().Deployments(s.Namespace).Patch(ctx, s.Deployment.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return fmt.Errorf("scale faas-netes' Deployment to %d: %w", pods, err)
	}
	return nil
}

// takeBack deletes or restores the function. It changes none that was changed since the plan.
func (m *Mover) takeBack(ctx context.Context, s Step) error {
	if s.found == nil || s.Action == Keep {
		return nil
	}
	if s.Action == Restore {
		return m.update(ctx, s, "")
	}
	background := metav1.DeletePropagationBackground
	err := m.onFound(ctx, s, func(u *unstructured.Unstructured, now *v1alpha1.Function) error {
		return m.functions(s).Delete(ctx, s.Name, metav1.DeleteOptions{PropagationPolicy: &background,
			Preconditions: &metav1.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion}})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil && !errors.Is(err, errChanged) {
		return fmt.Errorf("delete the function: %w", err)
	}
	return err
}
