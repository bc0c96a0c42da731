// Package v1alpha1 defines the custom resource of a function on Kubernetes: kind Function
// in group faas-infer.dev. The provider stores functions from faas-cli as such objects and
// deploys objects that kubectl applies. The package calls no API server except through
// [Client]. Begin reading at [Function]; "make generate" makes the deep copies and
// yaml/crd.yaml from types.go.
//
// +kubebuilder:object:generate=true
// +groupName=faas-infer.dev
package v1alpha1

//go:generate sh -c "go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=. output:crd:stdout > ../../../yaml/crd.yaml"

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

// GroupVersion is the API's group and version, Resource the resource of functions.
var (
	GroupVersion = schema.GroupVersion{Group: Group, Version: Version}
	Resource     = GroupVersion.WithResource(Plural)
)

// The annotations that faas-infer writes on a Function's own metadata.
const (
	// RevisionAnnotation counts the deployments of a function. It continues over
	// deletions: a later deployment always has a higher number.
	RevisionAnnotation = "faas-infer.dev/revision"
	// HashAnnotation is the hash of the revision's deployment. If it differs from the
	// hash of the spec, kubectl has changed the function and the leader gives it a new
	// revision.
	HashAnnotation = "faas-infer.dev/hash"
	// ImageAnnotation holds the annotations that come with the revision's image and
	// that the spec does not set, as a JSON object. It is "" for none, and Unread if
	// the image could not be read yet. The hash covers the spec and these annotations.
	ImageAnnotation = "faas-infer.dev/image-annotations"
	Unread          = "unread"
	// DeployedAnnotation is the time of the latest deployment, RFC 3339.
	DeployedAnnotation = "faas-infer.dev/deployed-at"
	// RolloutAnnotation is how the latest gradual rollout of the function ended, as JSON.
	RolloutAnnotation = "faas-infer.dev/rollout"
	// InstancesAnnotation is the number that the provider wrote last to spec.instances. Another
	// number there is somebody else's, see [Function.Scaled].
	InstancesAnnotation = "faas-infer.dev/instances"
)

// Labels and annotations of the objects that faas-infer makes for a function: pods of
// instances, Deployments and Services.
const (
	// FunctionLabel is the function's name. Objects of faas-netes have the same label.
	FunctionLabel = "faas_function"
	// ManagedByLabel is "faas-infer" on everything.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "faas-infer"
	// InstanceLabel is an instance's ID, on the pods of models only.
	InstanceLabel = "faas-infer.dev/instance"
	// MemberLabel is MemberMaster or MemberWorker, on the pods of members of a set only. A
	// network policy lets the one reach the other.
	MemberLabel  = "faas-infer.dev/member"
	MemberMaster = "master"
	MemberWorker = "worker"
	// PairLabel is PairBody or PairShadow, on the pods of instances that may have shadows and of
	// shadows only. A network policy lets the one reach the other. BodyLabel is the ID of a shadow's body.
	PairLabel  = "faas-infer.dev/pair"
	PairBody   = "body"
	PairShadow = "shadow"
	BodyLabel  = "faas-infer.dev/body"
	// SpecAnnotation is the instance's spec as JSON, on the pods of models.
	SpecAnnotation = "faas-infer.dev/spec"
	// CountedAnnotation is the resource version of the function with which its pods were
	// counted last, on one of the pods of a model, with a point and the second if it was counted
	// once more. The change of a pod makes Kubernetes calculate PodDisruptionBudgets again.
	CountedAnnotation = "faas-infer.dev/counted"
)

// Function is one deployed function. One deployed with faas-cli is kept in one, and one
// that kubectl applies is deployed.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/name=faas-infer";"app.kubernetes.io/component=crd";"app.kubernetes.io/part-of=faas-infer"
// +kubebuilder:resource:shortName=fn,categories=faas-infer
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.instances,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name=SLO,type=string,JSONPath=`.spec.annotations.com\.openfaas\.slo\.latency`
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Replicas,type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name=Available,type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Why,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="a function's name must be at most 63 characters and have no dot"
type Function struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what to deploy, as OpenFaaS has it.
	Spec FunctionSpec `json:"spec"`
	// Status is what runs of it; faas-infer writes it.
	// +optional
	Status FunctionStatus `json:"status,omitempty"`
}

// FunctionSpec is what a user deploys: OpenFaaS' deployment, less name and
// namespace, which are the object's own.
type FunctionSpec struct {
	// Image is the function's image.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Process is the classic watchdog's fprocess.
	Process string `json:"process,omitempty"`
	// Environment are the variables of its instances.
	// +mapType=atomic
	Environment map[string]string `json:"environment,omitempty"`
	// Constraints are node selectors, as "disktype=ssd".
	// +listType=atomic
	Constraints []string `json:"constraints,omitempty"`
	// Secrets are names of secrets in the function's namespace.
	// +listType=atomic
	Secrets []string `json:"secrets,omitempty"`
	// Labels are OpenFaaS' labels.
	// +kubebuilder:validation:XValidation:rule="!('com.openfaas.scale.min' in self) || !('com.openfaas.scale.max' in self) || !self['com.openfaas.scale.min'].matches('^[0-9]{1,9}$') || !self['com.openfaas.scale.max'].matches('^[0-9]{1,9}$') || int(self['com.openfaas.scale.max']) == 0 || int(self['com.openfaas.scale.min']) <= int(self['com.openfaas.scale.max'])",message="com.openfaas.scale.min must not be above com.openfaas.scale.max"
	// +mapType=atomic
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are OpenFaaS' annotations, among them the objective,
	// com.openfaas.slo.latency.
	// +kubebuilder:validation:XValidation:rule="!('com.openfaas.scale.min' in self) || !('com.openfaas.scale.max' in self) || !self['com.openfaas.scale.min'].matches('^[0-9]{1,9}$') || !self['com.openfaas.scale.max'].matches('^[0-9]{1,9}$') || int(self['com.openfaas.scale.max']) == 0 || int(self['com.openfaas.scale.min']) <= int(self['com.openfaas.scale.max'])",message="com.openfaas.scale.min must not be above com.openfaas.scale.max"
	// +kubebuilder:validation:XValidation:rule="!('com.openfaas.slo.latency' in self) || !self['com.openfaas.slo.latency'].matches('^(-.*|[+]?((0+([.]0*)?|[.]0+)[a-zµ]*)+)$')",message="com.openfaas.slo.latency must be a time above 0, for example 50ms"
	// +mapType=atomic
	Annotations map[string]string `json:"annotations,omitempty"`
	// Limits are the most that one instance may use.
	// +structType=atomic
	Limits *Resources `json:"limits,omitempty"`
	// Requests are what one instance is given at least.
	// +structType=atomic
	Requests *Resources `json:"requests,omitempty"`
	// ReadOnlyRootFilesystem leaves the instances only /tmp to write to.
	ReadOnlyRootFilesystem bool `json:"readOnlyRootFilesystem,omitempty"`
	// Replicas is how many instances are kept even without load; the deployment's own
	// minimum if absent.
	// +kubebuilder:validation:Minimum=0
	Replicas *int64 `json:"replicas,omitempty"`
	// Instances is how many pods the function should have now, also because of its load.
	// faas-infer writes it, and PodDisruptionBudgets count with it. A number that kubectl
	// scale writes becomes Replicas.
	// +kubebuilder:validation:Minimum=0
	Instances *int64 `json:"instances,omitempty"`
}

// Resources are amounts as Kubernetes writes them.
type Resources struct {
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="it must be a Kubernetes quantity above 0, for example 500m"
	CPU string `json:"cpu,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="it must be a Kubernetes quantity above 0, for example 128Mi"
	Memory string `json:"memory,omitempty"`
	// GPU is a number of whole NVIDIA GPUs, of ordinary functions only: models get
	// their share by their objective.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]*$')",message="it must be a whole number of GPUs"
	GPU string `json:"gpu,omitempty"`
	// AMDGPU and IntelGPU are other makers'.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]*$')",message="it must be a whole number of GPUs"
	AMDGPU string `json:"amdGPU,omitempty"`
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]*$')",message="it must be a whole number of GPUs"
	IntelGPU string `json:"intelGPU,omitempty"`
}

// PodSelector returns the labels of the pods of a function's instances as a selector.
func PodSelector(name string) string {
	return FunctionLabel + "=" + name + "," + ManagedByLabel + "=" + ManagedBy
}

// The conditions of a Function.
const (
	// ConditionAccepted is False if the spec cannot be deployed; the message says
	// why.
	ConditionAccepted = "Accepted"
	// ConditionReady is True while all wanted instances are ready. Otherwise the
	// message says what is missing.
	ConditionReady = "Ready"
	// ConditionProgressing is True while a later revision is rolled out gradually. The message says how far it is.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True if the latest gradual rollout was rolled back, or if no instance serves the function
	// although it should. The message says why.
	ConditionDegraded = "Degraded"
)

// FunctionStatus describes the running state of a function.
type FunctionStatus struct {
	// ObservedGeneration is the generation of the spec that this is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is how many instances there are to be, AvailableReplicas how many
	// of them are ready.
	// +optional
	Replicas int64 `json:"replicas"`
	// +optional
	AvailableReplicas int64 `json:"availableReplicas"`
	// Selector selects the pods of its instances, for PodDisruptionBudgets and autoscalers that
	// find them through the scale subresource.
	Selector string `json:"selector,omitempty"`
	// Conditions are Accepted, Ready, Progressing and Degraded.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Deployed is what was accepted last. It is served for as long as the spec cannot
	// be, by providers that start meanwhile, too.
	// +structType=atomic
	Deployed *Deployed `json:"deployed,omitempty"`
}

// Deployed is an accepted deployment.
type Deployed struct {
	// Revision is the deployment's.
	// +optional
	// +kubebuilder:validation:Format=int64
	Revision uint64 `json:"revision"`
	// Spec is the spec as it was then, with what the image brought along.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec DeployedSpec `json:"spec"`
}

// DeployedSpec is a spec, with what is known of its image.
type DeployedSpec struct {
	FunctionSpec `json:",inline"`
	// Resolved is the model's image as the deployment found it; nil for an ordinary
	// function. With it, a provider that starts serves the function without asking the
	// registry.
	Resolved *ResolvedImage `json:"resolved,omitempty"`
}

// ResolvedImage is a model's image.
type ResolvedImage struct {
	// Reference names the image by its digest, "sha256:" and 64 hexadecimal digits.
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	// Directory is the absolute path of the bundle in the image.
	Directory string `json:"directory"`
	// Entry is the content of a model that the function names by a URI, as caches of models name it. Content is its
	// name as providers send it to instances. Reference is then the image that runs it. Otherwise both are "".
	Entry   string `json:"entry,omitempty"`
	Content string `json:"content,omitempty"`
	// Platforms are those on which it runs, as "linux/amd64"; none if it does not say.
	Platforms []string `json:"platforms,omitempty"`
	// MaxTokens is the maximum number of tokens of a text, 0 if the models take none.
	MaxTokens int `json:"maxTokens,omitempty"`
	// Models are what instances may load.
	Models []ResolvedModel `json:"models"`
}

// ResolvedModel is one model of an image.
type ResolvedModel struct {
	// Name is the variant's name, "" for the only model; Of is the name of the model of
	// which it is a variant.
	Name string `json:"name,omitempty"`
	Of   string `json:"of,omitempty"`
	// File is the path below Directory. Hash identifies its content.
	File string `json:"file"`
	Hash string `json:"hash"`
	// Images says how the model expects images, "" if it takes none.
	Images string `json:"images,omitempty"`
	// Accuracy is in percent, 0 if it is not known.
	Accuracy float64 `json:"accuracy,omitempty"`
	// Weights is the size in bytes of the model with its external weights, 0 unless it may
	// be cut.
	Weights int64 `json:"weights,omitempty"`
}

// FunctionList is a list of functions.
//
// +kubebuilder:object:root=true
type FunctionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Function `json:"items"`
}
