package podspec

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// leaveSeconds is how long a terminating instance still takes requests, until
	// every replica of the provider knows that it is terminating.
	leaveSeconds = 5
	// minGrace is how long an instance then has to finish its requests, if its
	// timeouts do not allow longer. maxGrace bounds those timeouts.
	minGrace = 30 * time.Second
	maxGrace = time.Hour
	// lostSeconds is how long an instance on a node that does not answer may stay
	// before Kubernetes replaces it. Kubernetes' default is 300.
	lostSeconds = 30
)

// Ordinary makes the pod of an ordinary function, without its labels.
func Ordinary(d types.FunctionDeployment, s Settings, pull corev1.PullPolicy) (corev1.PodSpec, error) {
	resources, err := Resources(d, s.Profiles)
	if err != nil {
		return corev1.PodSpec{}, err
	}
	liveness, readiness, err := Probes(d)
	if err != nil {
		return corev1.PodSpec{}, err
	}
	grace := int64(math.Ceil(Grace(d.EnvVars).Seconds()))
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: d.Service, Image: d.Image, ImagePullPolicy: pull, Resources: resources,
			Ports:         []corev1.ContainerPort{{Name: PortName, ContainerPort: Port, Protocol: corev1.ProtocolTCP}},
			LivenessProbe: liveness, ReadinessProbe: readiness,
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: leaveSeconds}}},
		}},
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: &grace,
		Tolerations:                   []corev1.Toleration{lost(corev1.TaintNodeNotReady), lost(corev1.TaintNodeUnreachable)},
	}
	if s.Watchdog != nil {
		if err := secureWatchdog(&spec, d, s.Watchdog); err != nil {
			return corev1.PodSpec{}, err
		}
	}
	return spec, Apply(&spec, d, s)
}

func lost(taint string) corev1.Toleration {
	seconds := int64(lostSeconds)
	return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
}

// Grace returns an instance's grace period: leaveSeconds plus the longest that its
// watchdog lets a request last (exec_timeout, write_timeout), at least 30 s and at most
// an hour.
func Grace(env map[string]string) time.Duration {
	grace := minGrace
	for _, name := range []string{"exec_timeout", "write_timeout"} {
		grace = max(grace, min(timeout(env[name]), maxGrace))
	}
	return grace + leaveSeconds*time.Second
}

// timeout reads a watchdog's timeout: a duration such as 1m30s, or a number of seconds. It is 0
// for anything else.
func timeout(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	d, _ := time.ParseDuration(value)
	return d
}

// Strategy returns how an update replaces an ordinary function's instances. Each stays
// until its replacement is ready, unless a profile says Recreate.
func Strategy(profiles []Profile) appsv1.DeploymentStrategy {
	if recreates(profiles) {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	none, quarter := intstr.FromInt32(0), intstr.FromString("25%")
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &quarter}}
}

// scalePrefix begins the labels that set the number of instances. Pods do not carry them,
// because a change of the number must not replace instances.
const scalePrefix = "com.openfaas.scale."

// Labels returns the deployment's labels as the pods of the function carry them. An
// error names the label that Kubernetes does not allow.
func Labels(d types.FunctionDeployment) (map[string]string, error) {
	labels := map[string]string{}
	if d.Labels != nil {
		maps.Copy(labels, *d.Labels)
	}
	for key, value := range labels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return nil, &Error{Key: "labels", Value: key, Why: "on Kubernetes a label's name " + problems[0] + "; use an annotation instead"}
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return nil, &Error{Key: "labels." + key, Value: value, Why: "on Kubernetes " + problems[0] + "; use an annotation instead"}
		}
	}
	dropScaling(labels)
	return labels, nil
}

// Annotations returns the deployment's annotations as the pods of the function carry
// them. An error names the annotation that Kubernetes does not allow.
func Annotations(d types.FunctionDeployment) (map[string]string, error) {
	annotations := map[string]string{}
	if d.Annotations != nil {
		maps.Copy(annotations, *d.Annotations)
	}
	for key := range annotations {
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			return nil, &Error{Key: "annotations", Value: key, Why: "on Kubernetes an annotation's name " + problems[0]}
		}
	}
	dropScaling(annotations)
	return annotations, nil
}

func dropScaling(m map[string]string) {
	maps.DeleteFunc(m, func(key, _ string) bool { return strings.HasPrefix(key, scalePrefix) })
}
