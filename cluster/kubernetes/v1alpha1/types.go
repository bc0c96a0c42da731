// Package v1alpha1 is the custom resource that holds a function on Kubernetes:
// kind Function in group faas-infer.dev. What faas-cli deploys is kept in one, and
// one that kubectl applies is deployed.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version name the API.
const (
	Group   = "faas-infer.dev"
	Version = "v1alpha1"
	// Kind and Plural name its one resource.
	Kind   = "Function"
	Plural = "functions"
)

// GroupVersion is the API's, Resource the one of functions.
var (
	GroupVersion = schema.GroupVersion{Group: Group, Version: Version}
	Resource     = GroupVersion.WithResource(Plural)
)

// The annotations that faas-infer writes on a Function's own metadata.
const (
	// RevisionAnnotation counts the deployments of a function, also over
	// deletions: of two, the later has the higher number.
	RevisionAnnotation = "faas-infer.dev/revision"
	// HashAnnotation is the hash of the deployment that the revision is of. Where
	// it is not that of the spec, kubectl has changed the function and the leader
	// gives it a new revision.
	HashAnnotation = "faas-infer.dev/hash"
	// ImageAnnotation are the annotations that the revision's image brings along and
	// the spec does not set, as a JSON object; "" for none, Unread if the image could
	// not be read yet. The hash is of both.
	ImageAnnotation = "faas-infer.dev/image-annotations"
	Unread          = "unread"
	// DeployedAnnotation is the time of the latest deployment, RFC 3339.
	DeployedAnnotation = "faas-infer.dev/deployed-at"
)

// Labels of what faas-infer makes for a function: instances' pods, Deployments,
// Services.
const (
	// FunctionLabel is the function's name, the label that faas-netes' objects
	// have, too.
	FunctionLabel = "faas_function"
	// ManagedByLabel is "faas-infer" on everything.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "faas-infer"
	// InstanceLabel is an instance's ID, on the pods of models only.
	InstanceLabel = "faas-infer.dev/instance"
	// SpecAnnotation is the instance's spec as JSON, on the pods of models.
	SpecAnnotation = "faas-infer.dev/spec"
)

// Function is one deployed function.
type Function struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FunctionSpec   `json:"spec"`
	Status FunctionStatus `json:"status,omitempty"`
}

// FunctionSpec is what a user deploys: OpenFaaS' deployment, less name and
// namespace, which are the object's own.
type FunctionSpec struct {
	// Image is the function's image.
	Image string `json:"image"`
	// Process is the classic watchdog's fprocess.
	Process string `json:"process,omitempty"`
	// Environment are the variables of its instances.
	Environment map[string]string `json:"environment,omitempty"`
	// Constraints are node selectors, as "disktype=ssd".
	Constraints []string `json:"constraints,omitempty"`
	// Secrets are names of secrets in the function's namespace.
	Secrets []string `json:"secrets,omitempty"`
	// Labels and Annotations are OpenFaaS', among them the objective
	// (com.openfaas.slo.latency).
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Limits and Requests are resources of one instance.
	Limits   *Resources `json:"limits,omitempty"`
	Requests *Resources `json:"requests,omitempty"`
	// ReadOnlyRootFilesystem leaves the instances only /tmp to write to.
	ReadOnlyRootFilesystem bool `json:"readOnlyRootFilesystem,omitempty"`
	// Replicas is how many instances are kept even without load; nil for the
	// deployment's own minimum.
	Replicas *int64 `json:"replicas,omitempty"`
}

// Resources are amounts as Kubernetes writes them.
type Resources struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	// GPU is a number of whole GPUs of NVIDIA's, of ordinary functions only: models
	// get their share by their objective. AMDGPU and IntelGPU are other makers'.
	GPU      string `json:"gpu,omitempty"`
	AMDGPU   string `json:"amdGPU,omitempty"`
	IntelGPU string `json:"intelGPU,omitempty"`
}

// The conditions of a Function.
const (
	// ConditionAccepted is False where the spec cannot be deployed; the message
	// says why.
	ConditionAccepted = "Accepted"
	// ConditionReady is True while there are as many instances as there are to
	// be; else the message says what is missing.
	ConditionReady = "Ready"
)

// FunctionStatus is what runs of a function.
type FunctionStatus struct {
	// ObservedGeneration is the generation of the spec that this is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is how many instances there are to be, AvailableReplicas how many
	// of them are ready.
	Replicas          int64 `json:"replicas"`
	AvailableReplicas int64 `json:"availableReplicas"`
	// Conditions are Accepted and Ready.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Deployed is what was accepted last, nil if nothing was. It is served for as
	// long as the spec cannot be, by providers that start meanwhile, too.
	Deployed *Deployed `json:"deployed,omitempty"`
}

// Deployed is a deployment that was accepted.
type Deployed struct {
	// Revision is the deployment's.
	Revision uint64 `json:"revision"`
	// Spec is the spec as it was then, with what the image brought along.
	Spec FunctionSpec `json:"spec"`
}

// FunctionList is a list of functions.
type FunctionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Function `json:"items"`
}
