package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Action is what happens to a Function object of faas-infer.
type Action string

// The actions. Refuse changes nothing, neither the object nor faas-netes' Deployment.
const (
	Create  Action = "create"
	Replace Action = "replace"
	Keep    Action = "keep"
	Delete  Action = "delete"
	Restore Action = "restore"
	Refuse  Action = "refuse"
)

// Step is what a plan does with one function.
type Step struct {
	Origin
	Action Action
	// Why is the reason of Refuse, or a remark on Keep.
	Why string
	// Pods is the number of pods that faas-netes' Deployment gets when Scale is set. An undoing
	// waits for them in any case.
	Pods  int32
	Scale bool
	// found is the Function object as the plan saw it, nil for none.
	found *v1alpha1.Function
	// spec is what Create, Replace or Restore write.
	spec v1alpha1.FunctionSpec
	// undo: the step undoes an import.
	undo bool
}

// String says what the step does.
func (s Step) String() string {
	if s.Action == Refuse {
		return "nothing: " + s.Why
	}
	text := string(s.Action) + " the function"
	if s.Why != "" {
		text += " (" + s.Why + ")"
	}
	switch {
	case s.Scale && s.undo:
		text = fmt.Sprintf("scale the Deployment to %d, %s", s.Pods, text)
	case s.Scale:
		text += fmt.Sprintf(", scale the Deployment to %d", s.Pods)
	}
	return text
}

// Choices are the user's.
type Choices struct {
	// Names are the functions to look at, all if empty.
	Names []string
	// Overwrite replaces functions that exist with another image and, in an undoing, those
	// that have been changed since the import.
	Overwrite bool
	// KeepRunning leaves faas-netes' Deployments as they are.
	KeepRunning bool
	// AcceptLosses imports functions without what is in [Origin.Lost].
	AcceptLosses bool
}

func (c Choices) chosen(name string) bool { return len(c.Names) == 0 || slices.Contains(c.Names, name) }

// Unknown returns the names that a plan has no step for.
func (c Choices) Unknown(steps []Step) (names []string) {
	for _, name := range c.Names {
		if !slices.ContainsFunc(steps, func(s Step) bool { return s.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// Plan decides how to import the origins. A function that exists with the same image is kept: a
// second import changes nothing but what the first one did not finish. A function that would lose
// something is refused unless the user accepts that: it may become ready and then fail every request.
func Plan(state State, c Choices) (steps []Step) {
	for _, o := range state.Origins {
		if !c.chosen(o.Name) {
			continue
		}
		s := Step{Origin: o, spec: o.Spec, found: state.Functions[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}]}
		pods, retired := o.pods()
		s.Scale = o.Deployment != nil && !c.KeepRunning && (!retired || replicasOf(o.Deployment) > 0)
		// It starts with as many instances as serve now. Models start as many as they need.
		if pods > 0 && !isModel(o.Spec) {
			n := int64(pods)
			s.spec.Replicas = &n
		}
		switch f := s.found; {
		case o.Err != nil:
			s.refuse(o.Err.Error())
		case f == nil:
			s.Action = Create
		case f.Spec.Image == o.Spec.Image:
			if s.Action = Keep; hash(f.Spec) != hash(o.Spec) {
				s.Why = "it exists with the same image and other settings"
			}
		case c.Overwrite:
			s.Action = Replace
		default:
			s.refuse(fmt.Sprintf("it exists with the image %s; --overwrite replaces it", f.Spec.Image))
		}
		if len(o.Lost) > 0 && !c.AcceptLosses && (s.Scale || s.Action == Create || s.Action == Replace) {
			s.refuse("it would lose " + strings.Join(o.Lost, ", ") + "; --accept-losses moves it without that")
		}
		steps = append(steps, s)
	}
	return steps
}

func (s *Step) refuse(why string) { s.Action, s.Why, s.Scale = Refuse, why, false }

// PlanUndo decides how to undo imports. It touches only what an import has marked. A function that
// has nothing left to go back to stays: one without a Deployment, even if its openfaas.com object is
// there, and one whose Deployment somebody else has scaled to 0.
func PlanUndo(state State, c Choices) (steps []Step) {
	for _, o := range state.Origins {
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		s := Step{Origin: o, Action: Keep, Why: "no import has made it", found: state.Functions[key], undo: true}
		s.Pods, s.Scale = o.pods()
		m, imported := mark{}, false
		if s.found != nil {
			m, imported = readMark(s.found)
		}
		if !c.chosen(o.Name) || !imported && !s.Scale {
			continue
		}
		switch {
		case !imported && s.found == nil:
			s.Action, s.Why = Delete, "it is gone already"
		case !imported:
		case hash(s.found.Spec) != m.Hash && !c.Overwrite:
			s.refuse("it has been changed since the import; --overwrite gives the changes up")
		case m.Before != nil:
			s.Action, s.Why, s.spec = Restore, "as it was before the import", *m.Before
		case o.Deployment == nil:
			s.refuse("it has no Deployment of faas-netes, so nothing would serve it")
		case s.Pods == 0 && !s.Scale:
			s.refuse("faas-netes' Deployment has no pods, so nothing would serve it; scale the Deployment up first")
		default:
			s.Action, s.Why = Delete, ""
		}
		steps = append(steps, s)
	}
	return append(steps, orphans(state, c)...)
}

// orphans refuses to undo imports of which nothing is left at faas-netes.
func orphans(state State, c Choices) (steps []Step) {
	for _, key := range slices.SortedFunc(maps.Keys(state.Functions), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		f := state.Functions[key]
		_, imported := readMark(f)
		if !imported || !c.chosen(f.Name) || slices.ContainsFunc(state.Origins, func(o Origin) bool { return o.Namespace == f.Namespace && o.Name == f.Name }) {
			continue
		}
		s := Step{Origin: Origin{Namespace: f.Namespace, Name: f.Name, Spec: f.Spec}, found: f, undo: true}
		s.refuse("faas-netes' Deployment and object are gone, so nothing would serve it")
		steps = append(steps, s)
	}
	return steps
}

// isModel reports whether a function states an objective.
func isModel(s v1alpha1.FunctionSpec) bool {
	const objective = "com.openfaas.slo.latency"
	_, inAnnotations := s.Annotations[objective]
	_, inLabels := s.Labels[objective]
	return inAnnotations || inLabels
}

// retiredPods returns the number of pods that a retired Deployment had.
func retiredPods(d *appsv1.Deployment) (n int32, retired bool) {
	value, retired := d.Labels[RetiredLabel]
	had, err := strconv.ParseInt(value, 10, 32)
	if err != nil || had < 0 {
		had = 1 // Somebody has edited it: one pod serves.
	}
	return int32(had), retired
}
